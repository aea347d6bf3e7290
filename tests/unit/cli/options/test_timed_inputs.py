"""The batch that is timed: what was asked for, else what the engine's kernels were chosen at."""

import argparse
from typing import Any

import numpy as np
import pytest

from quantrt.cli.options.timed_inputs import timed_inputs
from quantrt.errors import DataError, UsageError
from quantrt.ir.tensor_spec import TensorSpec
from quantrt.plan.program_json import program_to_model
from quantrt.report.built.chosen_shapes import best_shapes
from quantrt.runtime.profile_check import PROFILES
from tests.programs import pooled_program

SPECS = (TensorSpec("x", "float32", ("N", 4, "H", "W")),)
BEST = {"x": [[1, 4, 8, 8], [2, 4, 8, 8], [4, 4, 16, 16]]}


def arguments(**given: Any) -> argparse.Namespace:
    return argparse.Namespace(**{"data": None, "shape": None, "batch": None, "preprocess": None, **given})


def engine_shapes(**notes: Any) -> dict[str, tuple[int, ...]]:
    return best_shapes(program_to_model(pooled_program("float16", notes=notes)))


def test_an_engine_with_profiles_is_timed_at_the_best_shapes_of_the_first():
    inputs, batch = timed_inputs(arguments(), SPECS, "e.qrt", engine_shapes(**{PROFILES: [BEST]}))
    assert inputs["x"].shape == (2, 4, 8, 8)
    assert batch == 2


def test_shapes_that_are_given_come_first():
    args = arguments(shape=[("x", (3, 4, 9, 9))])
    inputs, batch = timed_inputs(args, SPECS, "e.qrt", engine_shapes(**{PROFILES: [BEST]}))
    assert inputs["x"].shape == (3, 4, 9, 9)
    assert batch == 3


def test_without_profiles_free_sizes_have_to_be_given():
    with pytest.raises(UsageError, match="its shape is free"):
        timed_inputs(arguments(), SPECS, "e.qrt", engine_shapes())


def test_the_engines_shapes_come_in_the_batch_that_is_given():
    inputs, batch = timed_inputs(arguments(batch=3), SPECS, "e.qrt", {"x": (1, 4, 8, 8)})
    assert inputs["x"].shape == (3, 4, 8, 8)
    assert batch == 3
    state = (TensorSpec("s", "float32", (2, "N", 5)), *SPECS)
    with pytest.raises(UsageError, match="its shape is free"):
        timed_inputs(arguments(batch=3), state, "e.qrt", {"s": (2, 1, 5), "x": (1, 4, 8, 8)})


def test_data_come_in_the_batch_that_an_engine_was_chosen_at(tmp_path):
    np.savez(tmp_path / "x.npz", x=np.ones((5, 4, 8, 8), np.float32))
    args = arguments(data=tmp_path / "x.npz")
    assert timed_inputs(args, SPECS, "e.qrt", {"x": (4, 4, 8, 8)})[0]["x"].shape == (4, 4, 8, 8)
    assert timed_inputs(args, SPECS, "e.qrt")[0]["x"].shape == (1, 4, 8, 8)
    few = arguments(data=tmp_path / "x.npz")
    with pytest.raises(DataError, match="cannot make a batch of 8") as error:
        timed_inputs(few, SPECS, "e.qrt", {"x": (8, 4, 8, 8)})
    assert error.value.hint == "--batch 5"


def test_a_batch_that_is_given_comes_before_that_of_the_engine(tmp_path):
    np.savez(tmp_path / "x.npz", x=np.ones((5, 4, 8, 8), np.float32))
    args = arguments(data=tmp_path / "x.npz", batch=2)
    assert timed_inputs(args, SPECS, "e.qrt", {"x": (4, 4, 8, 8)})[1] == 2


def test_inputs_whose_first_axes_differ_are_no_batch(tmp_path):
    specs = (TensorSpec("x", "float32", (3, 4)), TensorSpec("y", "float32", (2,)))
    inputs, batch = timed_inputs(arguments(), specs, "e.qrt", {"x": (3, 4), "y": (2,)})
    assert batch == 1
    assert {name: array.shape for name, array in inputs.items()} == {"x": (3, 4), "y": (2,)}
