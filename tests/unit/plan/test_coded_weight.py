# SPDX-License-Identifier: Apache-2.0
"""Weights of floats that are codes times scales are found to be that, in any layout, and come back."""

from collections.abc import Callable

import numpy as np
import pytest

from quantrt.dtypes import FP8, INT8, DType
from quantrt.plan.coded_weight import FLOATS, CodedWeight, as_codes, may_be_codes
from quantrt.quantize.scales.qparams import QuantizedTensor, given_qparams, quantize_array, quantize_weight

QMAX = {INT8: 127, FP8: 448}
CODES = pytest.mark.parametrize("codes", QMAX, ids=lambda row: row.precision)
TYPES = pytest.mark.parametrize("dtype", FLOATS)


def quantized(rng: np.random.Generator, *shape: int, codes: DType = INT8, axis: int = 0) -> QuantizedTensor:
    """A weight whose channels differ by orders of magnitude; one is of zeros, another all but dead."""
    spread = np.exp(2.0 * rng.standard_normal(shape[axis]))
    spread[1], spread[2] = 0.0, 1e-7
    stretch = [1] * len(shape)
    stretch[axis] = -1
    weight = (0.1 * rng.standard_normal(shape) * spread.reshape(stretch)).astype(np.float32)
    return quantize_weight(weight, axis=axis, dtype=codes, qmax=QMAX[codes])


def expanded(weight: CodedWeight) -> np.ndarray:
    """The floats that a weight's codes stand for, as its definition says."""
    floats = weight.codes.astype(np.float32) * weight.scale.reshape(weight.scale_shape())
    return floats.astype(FLOATS[weight.dtype])


def assert_held(array: np.ndarray, codes: DType = INT8) -> CodedWeight:
    assert may_be_codes(array)
    found = as_codes(array)
    assert found is not None
    assert str(found.codes.dtype) == codes.name
    assert found.nbytes < 0.75 * array.nbytes
    again = expanded(found)
    assert again.dtype == array.dtype
    zeros = array == 0  # of either sign
    assert again[~zeros].tobytes() == array[~zeros].tobytes()
    assert not again[zeros].any()
    return found


LAYOUTS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "as it is": lambda w: w,
    "channels last": lambda w: np.moveaxis(w, 1, -1),
    "channels last, padded": lambda w: np.pad(np.moveaxis(w, 1, -1), [(0, 0)] * 3 + [(0, 5)]),
    "taps first": lambda w: np.moveaxis(w, (0, 1), (-1, -2)),
    "transposed": lambda w: w.reshape(len(w), -1).T,
    "rows in turns": lambda w: w.reshape(2, len(w) // 2, -1).swapaxes(0, 1).reshape(len(w), -1),
    "rows of a kernel's groups": lambda w: np.pad(
        w.reshape(2, 4, 3, 2, -1).swapaxes(1, 2).reshape(len(w), -1), [(0, 16), (0, 0)]
    ),
}


@CODES
@TYPES
@pytest.mark.parametrize("layout", LAYOUTS)
def test_codes_are_found_in_every_layout(rng: np.random.Generator, layout: str, dtype: str, codes: DType):
    floats = LAYOUTS[layout](quantized(rng, 48, 20, 3, 3, codes=codes).dequantize())
    assert_held(np.ascontiguousarray(floats.astype(FLOATS[dtype])), codes)


@TYPES
def test_few_values_on_each_scale(rng: np.random.Generator, dtype: str):
    taps = quantized(rng, 96, 1, 3, 3).dequantize()
    last = np.ascontiguousarray(np.moveaxis(taps[:, 0], 0, -1).astype(FLOATS[dtype]))
    assert assert_held(last).axis == 2


@TYPES
def test_one_scale_for_the_whole_weight(rng: np.random.Generator, dtype: str):
    qparams = given_qparams(0.0173)
    tensor = QuantizedTensor(
        quantize_array(rng.uniform(-1, 1, (64, 40)).astype(np.float32), qparams), qparams
    )
    assert np.abs(tensor.codes).max() < 60
    assert assert_held(tensor.dequantize().astype(FLOATS[dtype])).scale.shape == (1,)


@TYPES
def test_channels_that_do_not_reach_the_largest_code(rng: np.random.Generator, dtype: str):
    tensor = quantized(rng, 40, 64)
    codes = (tensor.codes * rng.uniform(0.2, 1.0, (40, 1))).astype(np.int8)
    assert_held(QuantizedTensor(codes, tensor.qparams).dequantize().astype(FLOATS[dtype]))


def test_codes_as_floats(rng: np.random.Generator):
    codes = quantized(rng, 64, 32).codes
    assert np.array_equal(assert_held(codes.astype(np.float16)).codes, codes)


def test_a_large_weight_is_worked_on_in_parts(rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("quantrt.plan.coded_weight._BLOCK", 1000)
    floats = quantized(rng, 16, 999).dequantize().astype(np.float16)
    assert_held(floats)
    assert_held(np.ascontiguousarray(floats.T))


@TYPES
def test_floats_are_left_as_they_are(rng: np.random.Generator, dtype: str):
    for shape in ((64, 300), (40, 24), (3, 3, 96), (5000,)):
        floats = rng.standard_normal(shape).astype(FLOATS[dtype])
        assert as_codes(floats) is None
        assert not may_be_codes(floats)
    changed = quantized(rng, 64, 300).dequantize().astype(FLOATS[dtype])
    changed[30, 17] = 1.37 * changed[30].max()  # one value that is no code of its channel
    assert as_codes(changed) is None


def test_what_is_not_finite_is_left_as_it_is(rng: np.random.Generator):
    for value in (np.inf, -np.inf, np.nan):
        floats = quantized(rng, 64, 3000).dequantize().astype(np.float16)
        floats[5, 2500] = value  # outside of what is looked at first
        assert as_codes(floats) is None


def test_what_would_save_nothing_is_left_as_it_is(rng: np.random.Generator):
    tensor = quantized(rng, 64, 5)
    assert as_codes(tensor.dequantize().astype(np.float16)) is None
    assert as_codes(tensor.dequantize().astype(np.float64)) is None
    assert as_codes(tensor.codes) is None
    assert as_codes(np.float16(3.0).reshape(())) is None
    assert as_codes(np.zeros((0, 4), np.float16)) is None


def test_zeros_are_codes():
    assert_held(np.zeros((16, 16), np.float16))


SCALE = np.ones(3, np.float32)
PARTS = {
    "another type": (np.zeros((3, 9), np.int8), SCALE, 0, "float64"),
    "other codes": (np.zeros((3, 9), np.int16), SCALE, 0, "float16"),
    "scales of another type": (np.zeros((3, 9), np.int8), SCALE.astype(np.float64), 0, "float16"),
    "no such axis": (np.zeros((3, 9), np.int8), SCALE, 2, "float16"),
    "an axis that is no number": (np.zeros((3, 9), np.int8), SCALE, "0", "float16"),
    "an axis that is a truth": (np.zeros((3, 3), np.int8), SCALE, True, "float16"),
    "too few scales": (np.zeros((9, 3), np.int8), SCALE, 0, "float16"),
    "too many scales": (np.zeros((9, 3), np.int8), SCALE, None, "float16"),
    "scales of another shape": (np.zeros((3, 9), np.int8), SCALE[:, None], 0, "float16"),
}


@pytest.mark.parametrize("case", PARTS)
def test_parts_that_do_not_belong_together(case: str):
    with pytest.raises(ValueError, match="scales"):
        CodedWeight(*PARTS[case])
