# SPDX-License-Identifier: Apache-2.0
"""Factors of engines whose kernels sum to round numbers, worked out by hand."""

import pytest

from quantrt.assign.tables.whole_engines import Factors, TimedKernels, fit_factors


def test_an_engine_in_floats_tells_both_factors():
    found = fit_factors([TimedKernels(10.0, 0.0, 9.0)])
    assert (found.floats, found.codes) == pytest.approx((0.9, 0.9))
    assert found.together_ms(4.0, 6.0) == pytest.approx(9.0)


def test_engines_that_agree_are_met():
    found = fit_factors([TimedKernels(10.0, 0.0, 9.0), TimedKernels(4.0, 6.0, 9.0)])
    assert (found.floats, found.codes) == pytest.approx((0.9, 0.9))


def test_an_engine_in_codes_tells_its_factor_apart():
    """Normal equations, with (0.02 / 0.15)^2 = 4 / 225: 229 f - 4 c = 225 and -4 f + 355.5625 c = 281.25."""
    found = fit_factors([TimedKernels(10.0, 0.0, 10.0), TimedKernels(0.0, 10.0, 8.0)])
    assert found.floats == pytest.approx(81126.5625 / 81407.8125)  # 0.9965: nearly 1, which it takes
    assert found.codes == pytest.approx(65306.25 / 81407.8125)  # 0.8022: nearly 0.8


def test_a_few_kernels_in_codes_tell_little():
    """An engine 10 % faster than the other for 5 % of its kernels: by them alone codes would take -1."""
    found = fit_factors([TimedKernels(10.0, 0.0, 10.0), TimedKernels(9.5, 0.5, 9.0)])
    assert 0.75 < found.codes < 0.85
    assert 0.94 < found.floats < 0.96


def test_no_factor_is_negative():
    found = fit_factors([TimedKernels(10.0, 0.0, 10.0)] * 20 + [TimedKernels(5.0, 5.0, 1.0)] * 20)
    assert found.codes == 0.0
    assert found.floats > 0.0


def test_an_eight_bit_engine_is_foretold_by_those_of_another_kind():
    """SDXL's UNet at 1024 x 1024 on an H200 (ed5eb53): kernels alone and engines, ms; FP8 took 19.08."""
    fp16, int8 = TimedKernels(30.35, 0.0, 29.15), TimedKernels(9.49, 13.01, 18.40)
    by_floats = fit_factors([fp16]).together_ms(9.42, 13.14)
    by_both = fit_factors([fp16, int8]).together_ms(9.42, 13.14)
    assert 19.08 / by_floats == pytest.approx(0.88, abs=0.005)
    assert 19.08 / by_both == pytest.approx(1.03, abs=0.005)


def test_nothing_timed_leaves_things_as_they_are():
    assert fit_factors([]) == Factors(1.0, 1.0)
    assert fit_factors([TimedKernels(0.0, 0.0, 3.0)]) == Factors(1.0, 1.0)
