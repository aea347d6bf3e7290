# SPDX-License-Identifier: Apache-2.0
"""When codes beside 16-bit floats that were left out are opened after all."""

from types import SimpleNamespace
from unittest.mock import Mock

import pytest

from quantrt.assign.choose import Choice, Verdict
from quantrt.mix.contest import Contest
from quantrt.mix.late import open_late
from quantrt.tactics.candidates import Rejected, Spec
from quantrt.tactics.timing import Latency

FP32, INT8 = Spec("openvino", "fp32"), Spec("openvino", "int8")
BF16, BESIDE = Spec("openvino", "bf16", "bf16"), Spec("openvino", "int8", "bf16")
LEFT_OUT = (Rejected(BESIDE, "nothing to gain", "left out"),)
FITS = {("openvino", "int8"): SimpleNamespace(model=SimpleNamespace(has_int8=True))}


def contest(status: str, times_ms: dict[Spec, float]) -> Contest:
    """One in which codes beside FP32 came to this."""
    latencies = {spec.name: Latency((ms,) * 8) for spec, ms in times_ms.items()}
    choice = Choice(FP32.name, FP32.name, "", {INT8.name: Verdict(status, "")})
    opener = Mock(open=lambda spec, fitted: SimpleNamespace(spec=spec, fitted=fitted))
    return Contest({}, latencies, choice, lambda name: None, {}, opener)


def job(*, mixed: bool = True):
    config = SimpleNamespace(assign=SimpleNamespace(mixed=mixed))
    return SimpleNamespace(config=config, emit=lambda event: None)


@pytest.mark.parametrize(
    ("status", "bf16_ms", "is_opened"),
    [
        ("shipped", 2.0, False),
        ("passed over", 1.1, False),
        ("passed over", 1.0, True),
        ("over budget", 2.0, True),
        ("over budget", None, True),
        ("shipped", None, False),
    ],
)
def test_it_is_opened_where_codes_are_outside_the_budget_or_as_slow_as_the_floats(status, bf16_ms, is_opened):
    times_ms = {FP32: 3.0, INT8: 1.0} | ({} if bf16_ms is None else {BF16: bf16_ms})
    found = contest(status, times_ms)
    added = open_late(job(), found, LEFT_OUT, FITS)
    assert added == ((BESIDE.name,) if is_opened else ())
    assert list(found.candidates) == list(added)
    assert all(one.fitted is FITS["openvino", "int8"] for one in found.candidates.values())


@pytest.mark.parametrize(
    ("mixed", "rejected"),
    [
        (False, LEFT_OUT),
        (True, (Rejected(BESIDE, "no such instructions"),)),
        (True, (Rejected(FP32, "behind", "left out"),)),
    ],
)
def test_it_is_not_where_nothing_is_mixed_nor_what_was_left_out_for_something_else(mixed, rejected):
    assert open_late(job(mixed=mixed), contest("over budget", {FP32: 3.0, INT8: 1.0}), rejected, FITS) == ()


def test_what_no_library_opens_stays_out():
    found = contest("over budget", {FP32: 3.0, INT8: 1.0})
    found.opener.open = lambda spec, fitted: Rejected(spec, "refused")
    assert open_late(job(), found, LEFT_OUT, FITS) == () and not found.candidates
