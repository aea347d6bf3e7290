"""The batch that is timed: what was asked for, else what the engine's kernels were chosen at."""

import argparse
from typing import Any

import pytest

from quantrt.cli.timed_inputs import timed_inputs
from quantrt.errors import UsageError
from quantrt.ir.tensor_spec import TensorSpec
from quantrt.plan.plan import LibraryModel
from quantrt.plan.program_json import program_to_model
from quantrt.runtime.profile_check import PROFILES
from tests.programs import pooled_program

SPECS = (TensorSpec("x", "float32", ("N", 4, "H", "W")),)
BEST = {"x": [[1, 4, 8, 8], [2, 4, 8, 8], [4, 4, 16, 16]]}


def arguments(**given: Any) -> argparse.Namespace:
    return argparse.Namespace(**{"data": None, "shape": None, "batch": None, "preprocess": None, **given})


def engine_model(**notes: Any) -> LibraryModel:
    return program_to_model(pooled_program("float16", notes=notes))


def test_an_engine_with_profiles_is_timed_at_the_best_shapes_of_the_first():
    inputs, batch = timed_inputs(arguments(), SPECS, "e.qrt", engine_model(**{PROFILES: [BEST]}))
    assert inputs["x"].shape == (2, 4, 8, 8)
    assert batch == 2


def test_shapes_that_are_given_come_first():
    args = arguments(shape=[("x", (3, 4, 9, 9))])
    inputs, batch = timed_inputs(args, SPECS, "e.qrt", engine_model(**{PROFILES: [BEST]}))
    assert inputs["x"].shape == (3, 4, 9, 9)
    assert batch == 3


def test_without_profiles_free_sizes_have_to_be_given():
    with pytest.raises(UsageError, match="its shape is free"):
        timed_inputs(arguments(), SPECS, "e.qrt", engine_model())
