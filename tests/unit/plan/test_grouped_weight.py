# SPDX-License-Identifier: Apache-2.0
"""Weights that are 4-bit codes times scales of groups, found in their values, and held as these."""

from dataclasses import replace

import ml_dtypes
import numpy as np
import pytest

from quantrt.errors import ModelError
from quantrt.plan.grouped_weight import MIDDLE, GroupedWeight, as_groups, may_be_groups
from quantrt.plan.program import Program
from quantrt.plan.program_json import program_from_model, program_to_model
from quantrt.quantize.algorithms.group_rounding import round_nearest
from tests.unit.plan.test_program_json import small_program

TYPES = [np.dtype(kind) for kind in (np.float32, np.float16, ml_dtypes.bfloat16)]
SHAPES = [(256, 9, 128), (192, 33, 64), (100, 7, 32), (130, 5, 64), (32, 3, 32)]
"""Inputs, outputs, group size; the last group of some is smaller."""


def rounded(rng: np.random.Generator, K: int, N: int, size: int) -> np.ndarray:
    """As our recipes make them: signed codes, scales of either sign."""
    return round_nearest(rng.normal(0, 0.05, (K, N)).astype(np.float32), group_size=size).dequantize()


def with_zeros(rng: np.random.Generator, K: int, N: int, size: int) -> np.ndarray:
    """As files of others have them: a zero point for each group."""
    groups = -(-K // size)
    zeros, scale = rng.integers(0, 16, (groups, N)), rng.uniform(1e-3, 0.1, (groups, N)).astype(np.float32)
    codes = rng.integers(0, 16, (K, N))
    zeros, scale = (np.repeat(array, size, axis=0)[:K] for array in (zeros, scale))
    return ((codes - zeros).astype(np.float32) * scale).astype(np.float32)


def floats_of(weight: GroupedWeight) -> np.ndarray:
    """What it stands for, by the formula."""
    zeros = np.full(weight.scale.shape, MIDDLE) if weight.zero_point is None else weight.zero_point
    zeros, scale = (
        np.repeat(array, weight.group_size, axis=1)[:, : weight.inputs] for array in (zeros, weight.scale)
    )
    rows = ((weight.rows() - zeros.astype(np.float32)) * scale).astype(weight.dtype)
    return rows if weight.axis else rows.T


@pytest.mark.parametrize("make", [rounded, with_zeros])
@pytest.mark.parametrize("dtype", TYPES, ids=str)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_the_same_floats_come_out_of_codes(rng: np.random.Generator, shape, dtype, make):
    inputs, _, size = shape
    for weight in (floats := make(rng, *shape).astype(dtype), np.ascontiguousarray(floats.T)):
        assert may_be_groups(weight)
        found = as_groups(weight)
        assert found is not None
        assert found.group_size == size and found.inputs == inputs
        assert found.axis == (0 if weight is floats else 1)
        assert (found.zero_point is None) == (make is rounded)
        assert np.array_equal(floats_of(found), weight)
        assert found.nbytes <= weight.size * (0.5 + 5 / 32) + 5 * weight.size  # of the smallest ones


def test_four_and_a_half_bits_for_a_weight(rng: np.random.Generator):
    found = as_groups(rounded(rng, 512, 64, 64).astype(np.float16))
    assert found is not None and found.nbytes * 8 == 4.5 * 512 * 64


def test_merged_and_shuffled_weights_are_found(rng: np.random.Generator):
    """Of several products side by side, and rows in another order."""
    whole = np.concatenate([rounded(rng, 128, 12, 64) for _ in range(3)], axis=1)[:, rng.permutation(36)]
    found = as_groups(whole, axis=0)
    assert found is not None and np.array_equal(floats_of(found), whole)
    assert as_groups(whole, axis=1) is None


def test_other_weights_are_not_codes(rng: np.random.Generator):
    normal = rng.normal(0, 1, (256, 256)).astype(np.float32)
    eight = np.rint(normal * 30).clip(-127, 127).astype(np.float32) * np.float32(0.01)
    one_off = rounded(rng, 256, 256, 32)
    one_off[200, 200] += 1e-3
    wide = np.where((np.arange(256) + np.arange(256)[:, None]) % 2, 0.5, 16.0).astype(np.float32)
    lost = [np.full((64, 64), value, np.float32) for value in (np.nan, np.inf)]
    for weight in (normal, eight, one_off, wide, *lost, normal[:, :16], normal[0], normal.astype(np.float64)):
        assert as_groups(weight) is None
    assert not may_be_groups(normal)


def test_zeros_and_the_smallest_numbers(rng: np.random.Generator):
    assert as_groups(np.zeros((64, 64), np.float32)) is not None
    tiny = np.full((64, 64), 1e-45, np.float32)
    found = as_groups(tiny)
    assert found is None or np.array_equal(floats_of(found), tiny)


@pytest.mark.parametrize(
    "changes",
    [
        {"dtype": "float64"},
        {"axis": 2},
        {"axis": None},
        {"group_size": 48},
        {"inputs": 129},
        {"scale": np.ones((7, 5), np.float32)},
        {"codes": np.zeros((7, 50), np.int8)},
        {"zero_point": np.zeros((7, 5), np.uint8)},
    ],
    ids=lambda changes: next(iter(changes)),
)
def test_parts_that_do_not_belong_together(rng: np.random.Generator, changes):
    found = as_groups(with_zeros(rng, 100, 7, 32))
    assert found is not None
    with pytest.raises(ValueError, match="."):
        replace(found, **changes)


def program(rng: np.random.Generator) -> Program:
    arrays = {"w/é": rounded(rng, 192, 33, 64).astype(np.float16), "s": with_zeros(rng, 96, 5, 32).T.copy()}
    return small_program(weights=arrays)


def test_engine_files_hold_the_codes(rng: np.random.Generator):
    given = program(rng)
    model = program_to_model(given)
    held = {name: array.dtype for name, array in model.weights.items() if "/é" in name or name.endswith("/s")}
    assert held == {
        "weight/w/é": np.uint8,
        "scale/w/é": np.float32,
        "weight/s": np.uint8,
        "scale/s": np.float32,
        "zero/s": np.uint8,
    }
    found = program_from_model(model)
    assert not found.weights and found.coded.keys() == given.weights.keys()
    assert program_to_model(found).graph == model.graph, "what was read is written as it was"
    for key, array in given.weights.items():
        assert np.array_equal(floats_of(found.coded[key]), array)


@pytest.mark.parametrize("name", ["weight/s", "scale/s", "zero/s"])
def test_lost_parts_are_found(rng: np.random.Generator, name: str):
    model = program_to_model(program(rng))
    weights = {key: array for key, array in model.weights.items() if key != name}
    weights |= {f"zero/{name}": np.zeros((1, 1), np.uint8)} if name == "zero/s" else {}
    with pytest.raises(ModelError, match="cannot use the program"):
        program_from_model(replace(model, weights=weights))
