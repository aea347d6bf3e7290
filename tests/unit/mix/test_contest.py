# SPDX-License-Identifier: Apache-2.0
"""Which candidate with codes precisions are mixed from."""

from types import SimpleNamespace

import pytest

from quantrt.assign.accuracy.accuracy import Accuracy
from quantrt.assign.choose import Choice, Verdict
from quantrt.mix.contest import Contest, find_pair
from quantrt.tactics.candidates import Candidate, Spec
from quantrt.tactics.timing import Latency

FITTED = SimpleNamespace(is_mixable=True)

FP16, INT8, FP8 = Spec("cuda", "fp16", "fp16"), Spec("cuda", "int8", "fp16"), Spec("cuda", "fp8", "fp16")

BUDGET = 10**-3.5
"""Of noise: 35 dB."""


def contest(winner: Spec, times_ms: dict[Spec, float], drops: dict[Spec, float]) -> Contest:
    candidates = {
        spec.name: Candidate(spec, None, None, None, FITTED if spec.has_codes else None) for spec in times_ms
    }
    verdicts = {spec.name: Verdict("", "", None, None) for spec in times_ms}
    for spec, drop in drops.items():
        verdicts[spec.name] = Verdict("", "", None, Accuracy("sqnr", 0.0, 0.0, drop, 0.0, 0.0, 8, 8))
    latencies = {spec.name: Latency((time_ms,) * 8) for spec, time_ms in times_ms.items()}
    choice = Choice(winner.name, FP16.name, "", verdicts)
    return Contest(candidates, latencies, choice, None, {}, None)


@pytest.mark.parametrize(
    ("drops", "codes"),
    [
        ({FP8: 10**-2.52, INT8: 10**-3.23}, INT8),  # 0.10 of FP8's noise is allowed, 0.54 of int8's
        ({FP8: 10**-3.3, INT8: 10**-3.3}, FP8),
        ({FP8: 10**-3.3, INT8: float("inf")}, FP8),
    ],
)
def test_outside_the_budget_the_mix_that_is_expected_to_be_faster_is_tried(drops, codes: Spec):
    pair = find_pair(contest(FP16, {FP16: 2.43, INT8: 1.89, FP8: 1.74}, drops), BUDGET)
    assert (pair.codes, pair.floats, pair.precision) == (codes.name, FP16.name, codes.precision)


def test_with_one_kind_inside_the_budget_the_fastest_is_mixed():
    times = {FP16: 2.43, INT8: 1.89, FP8: 1.74}
    assert find_pair(contest(INT8, times, {FP8: 0.5, INT8: 1e-9}), BUDGET).codes == FP8.name


def test_codes_without_floats_beside_them_are_mixed_with_nothing():
    times = {Spec("cuda", "fp32"): 9.0, INT8: 1.0}
    assert find_pair(contest(Spec("cuda", "fp32"), times, {}), BUDGET) is None
    bf16 = Spec("openvino", "int8", "bf16")
    assert find_pair(contest(FP16, {FP16: 2.0, bf16: 1.0}, {}), BUDGET) is None


def test_codes_beside_bf16_are_mixed_with_bf16():
    names = [("fp32", "fp32"), ("int8", "fp32"), ("bf16", "bf16"), ("int8", "bf16")]
    fp32, beside_fp32, bf16, beside_bf16 = (Spec("openvino", *pair) for pair in names)
    times = {fp32: 3.0, beside_fp32: 1.2, bf16: 2.0, beside_bf16: 1.0}
    pair = find_pair(contest(beside_bf16, times, {}), BUDGET)
    assert (pair.codes, pair.floats) == ("openvino int8+bf16", "openvino bf16")
    pair = find_pair(contest(beside_fp32, times | {beside_fp32: 0.9}, {}), BUDGET)
    assert (pair.codes, pair.floats) == ("openvino int8", "openvino fp32")
