# SPDX-License-Identifier: Apache-2.0
"""Samples of a model as its engine takes them."""

import numpy as np
import pytest

from quantrt.calibrate.converted import as_bound, bound_inputs, converted, given_outputs
from quantrt.calibrate.dataset import open_dataset, random_dataset
from quantrt.errors import DataError
from quantrt.ir.tensor_spec import TensorSpec

SPEC = TensorSpec("x", "float32", ("N", 4))


def bound(dtype: str, scale: float | None = None) -> TensorSpec:
    return TensorSpec("x", dtype, ("N", 4), scale)


def test_samples_are_converted_as_they_are_read(rng):
    x = rng.standard_normal((5, 4)).astype(np.float32)
    data = open_dataset({"x": x, "labels": np.arange(5)}, (SPEC,))
    spec = bound("float16")
    found = converted(data, (spec,), lambda name, array: as_bound(array, spec, name), 0)
    batches = list(found.batches(2))
    assert [batch.inputs["x"].dtype for batch in batches] == [np.float16] * 3
    np.testing.assert_array_equal(np.concatenate([b.inputs["x"] for b in batches]), x.astype(np.float16))
    np.testing.assert_array_equal(np.concatenate([b.labels["labels"] for b in batches]), np.arange(5))
    assert found.sample_count == 5
    assert converted(None, (spec,), lambda name, array: array, 0) is None


def test_samples_are_laid_out_anew_in_batches_too(rng):
    x = rng.standard_normal((5, 3, 4, 6)).astype(np.float32)
    data = open_dataset({"x": x}, (TensorSpec("x", "float32", ("N", 3, 4, 6)),))
    spec = TensorSpec("x", "float32", ("N", 4, 6, 3))
    found = converted(data, (spec,), lambda name, array: array.transpose(0, 2, 3, 1), 0)
    batches = [batch.inputs["x"] for batch in found.batches(2)]
    assert [batch.shape for batch in batches] == [(2, 4, 6, 3), (2, 4, 6, 3), (1, 4, 6, 3)]
    np.testing.assert_array_equal(np.concatenate(batches), x.transpose(0, 2, 3, 1))


def test_random_samples_are_made_anew():
    spec = bound("uint8")
    found = converted(random_dataset((SPEC,), 3, 0), (spec,), lambda name, array: array, 0)
    assert found.is_random
    assert {sample.inputs["x"].dtype for sample in found.samples()} == {np.dtype(np.uint8)}


def test_values_in_other_types():
    x = np.array([[0.0, 1.0, -300.0, 2.5]], np.float32)
    np.testing.assert_array_equal(as_bound(x, bound("int8", 0.5), "x"), [[0, 2, -128, 5]])
    np.testing.assert_array_equal(as_bound(np.abs(x[:, :3]) % 256, bound("uint8"), "x"), [[0, 1, 44]])
    assert as_bound(x, bound("float32"), "x") is x
    np.testing.assert_array_equal(as_bound(np.array([0, 7]), bound("int32"), "x"), [0, 7])


@pytest.mark.parametrize(
    ("values", "dtype", "message"),
    [
        ([0.5], "uint8", "x cannot be given as uint8"),
        ([-1.0], "uint8", "x cannot be given as uint8"),
        ([256.0], "uint8", "x cannot be given as uint8"),
        ([1e6], "float16", "NaN or infinite"),
    ],
)
def test_values_that_a_type_has_not(values, dtype: str, message: str):
    with pytest.raises(DataError, match=message):
        as_bound(np.array(values, np.float32), bound(dtype), "x")


def test_whole_numbers_that_do_not_fit():
    with pytest.raises(DataError, match="cannot be given as int32"):
        as_bound(np.array([2**40]), bound("int32"), "x")


def test_arrays_of_a_model_for_its_engine_and_back(rng):
    x = rng.standard_normal((2, 3, 4, 5)).astype(np.float32)
    spec = TensorSpec("x", "int8", ("N", 4, 5, 3), 0.05, "nhwc")
    bound_x = bound_inputs({"x": x, "other": x}, (spec,))
    assert bound_x["x"].shape == (2, 4, 5, 3)
    assert bound_x["x"].dtype == np.int8
    assert bound_x["other"] is x
    again = given_outputs(bound_x, (spec,))
    assert np.abs(again["x"] - x).max() <= 0.0251
    assert again["other"] is x


def test_floats_become_the_codes_of_an_input_that_has_a_scale(rng):
    x = rng.standard_normal((2, 4)).astype(np.float32)
    data = open_dataset({"x": x}, (bound("int8", 0.05),))
    found = np.concatenate([sample.inputs["x"] for sample in data.samples()])
    np.testing.assert_array_equal(found, np.clip(np.rint(x / np.float32(0.05)), -128, 127))
    assert data.notes == ("input 'x': float32 data were quantized on the scale 0.05",)
    with pytest.raises(DataError, match="NaN"):
        list(open_dataset({"x": np.full((1, 4), np.nan, np.float32)}, (bound("int8", 0.05),)).samples())
