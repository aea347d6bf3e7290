# SPDX-License-Identifier: Apache-2.0
"""What counts as a peak of ours on the page of rooflines."""

import pytest

pytest.importorskip("torch", reason="the benchmark runs in torch")

from benchmarks.cuda_roofline import own_rate
from quantrt.tactics.cuda.tactic import REFERENCE, Tactic
from quantrt.tactics.cuda.tuning.choices import Choice


def choice(source: str, name: str, median_us: float | None) -> Choice:
    return Choice(Tactic(source, name, ()), median_us, "timed", "key")


def test_a_peak_of_ours_is_named_for_its_kernel():
    found = own_rate("fp8", 8_000_000, choice("triton", "gemm hopper 128x128 s6 promoted", 4.0))
    assert found == {"fp8, ours: gemm hopper 128x128 s6 promoted": 2_000_000.0}


@pytest.mark.parametrize(
    "made", [choice("torch", REFERENCE, 19_000.0), choice("triton", "gemm hopper 128x128 s6", None)]
)
def test_the_reference_and_what_was_not_timed_are_no_peaks_of_ours(made: Choice):
    assert own_rate("fp8", 8_000_000, made) == {}
