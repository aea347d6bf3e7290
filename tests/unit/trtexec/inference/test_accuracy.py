# SPDX-License-Identifier: Apache-2.0
"""Losses of outputs against references."""

import math

import numpy as np
import pytest

from quantrt.errors import DataError
from quantrt.trtexec.flags.run_settings import RunSettings
from quantrt.trtexec.inference.accuracy import Loss, loss_of

REF = np.array([1.0, -2.0, 0.0, 4.0], np.float32)
GOT = np.array([1.0, -2.5, 0.5, 4.0], np.float32)


@pytest.mark.parametrize(
    ("algorithm", "want"),
    [("l0", 0.5), ("l1", 0.25), ("l2", 0.125), ("lInf", 0.5), ("cos", 1 - 22 / math.sqrt(21 * 23.5))],
)
def test_each_algorithm(algorithm: str, want: float):
    assert loss_of(REF, GOT, RunSettings(algorithm=algorithm)) == pytest.approx(want)
    assert loss_of(REF, REF, RunSettings(algorithm=algorithm)) == pytest.approx(0.0, abs=1e-12)


def test_tolerances_of_l0_are_absolute_and_relative():
    assert loss_of(REF, GOT, RunSettings(atol=0.5, rtol=0.0)) == 0.0
    assert loss_of(REF, GOT, RunSettings(atol=0.0, rtol=0.25)) == 0.25


@pytest.mark.parametrize("algorithm", ["l0", "l1", "l2", "lInf", "cos"])
def test_nan_never_passes(algorithm: str):
    bad = GOT.copy()
    bad[0] = np.nan
    value = loss_of(bad, GOT, RunSettings(algorithm=algorithm))
    assert not Loss(0, "y", value, 1.0).passed  # however few they are


def test_an_empty_output_is_equal_to_itself():
    assert loss_of(REF[:0], GOT[:0], RunSettings(algorithm="cos")) == 0.0


def test_shapes_that_differ():
    with pytest.raises(DataError, match="cannot compare"):
        loss_of(REF, GOT[:2], RunSettings())


def test_the_verdict_as_text():
    assert str(Loss(1, "y", 0.25, 0.3)) == "y (pair 1): loss = 0.25, threshold = 0.3: passed"
    assert str(Loss(0, "y", 0.25, 0.2)).endswith("FAILED")
