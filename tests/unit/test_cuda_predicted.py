# SPDX-License-Identifier: Apache-2.0
"""Engines predicted by the others of a row, in round numbers."""

from dataclasses import replace

import pytest

from benchmarks.cuda.predicted import predicted_ms
from quantrt.assign.tables.whole_engines import TimedKernels

KERNELS = {
    "fp16": TimedKernels(10.0, 0.0, 9.0),
    "int8": TimedKernels(4.0, 6.0, 9.0),
    "fp8": TimedKernels(2.0, 5.0, 7.0),
}


def test_an_engine_is_predicted_by_the_others():
    """Floats and codes take 0.9 of what they take alone in both others: 0.9 * (2 + 5)."""
    assert predicted_ms(KERNELS, floats="fp16")["fp8"] == pytest.approx(6.3)


def test_its_own_time_is_not_in_it():
    slower = {**KERNELS, "fp8": replace(KERNELS["fp8"], latency_ms=70.0)}
    assert predicted_ms(slower, floats="fp16")["fp8"] == pytest.approx(6.3)
    assert predicted_ms(slower, floats="fp16")["int8"] > predicted_ms(KERNELS, floats="fp16")["int8"]


def test_one_engine_in_codes_is_predicted_by_that_in_floats():
    both = {name: KERNELS[name] for name in ("fp16", "int8")}
    assert predicted_ms(both, floats="fp16") == {"int8": pytest.approx(9.0)}


def test_nothing_is_predicted_without_an_engine_in_floats():
    assert predicted_ms({name: KERNELS[name] for name in ("int8", "fp8")}, floats="fp16") == {}
