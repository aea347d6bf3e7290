# SPDX-License-Identifier: Apache-2.0
"""Types survive the way into torch and back; casts agree with ml_dtypes on every 16-bit float."""

import ml_dtypes
import numpy as np
import pytest

pytest.importorskip("torch", reason="the torch operators need torch")

import torch

from quantrt.errors import ModelError
from quantrt.operators.element_types import from_numpy, onnx_type, restored, stored, to_numpy, torch_type
from quantrt.operators.elementwise.cast import convert

CPU = torch.device("cpu")
BYTE_TYPES = (
    np.int8,
    np.uint8,
    ml_dtypes.float8_e4m3fn,
    ml_dtypes.float8_e4m3fnuz,
    ml_dtypes.float8_e5m2,
    ml_dtypes.float8_e5m2fnuz,
    ml_dtypes.float8_e8m0fnu,
)
WIDE_TYPES = (
    np.float16,
    np.float32,
    np.float64,
    ml_dtypes.bfloat16,
    np.int16,
    np.uint16,
    np.uint32,
    np.uint64,
)
NARROW_TYPES = (ml_dtypes.int4, ml_dtypes.uint4, ml_dtypes.int2, ml_dtypes.uint2, ml_dtypes.float4_e2m1fn)
FLOAT8 = BYTE_TYPES[2:6]


@pytest.mark.parametrize("dtype", BYTE_TYPES)
def test_every_byte_survives(dtype: type):
    array = np.arange(256, dtype=np.uint8).view(dtype)
    assert to_numpy(from_numpy(array, CPU)).tobytes() == array.tobytes()


@pytest.mark.parametrize("dtype", [*WIDE_TYPES, *NARROW_TYPES])
def test_values_types_and_shapes_survive(dtype: type, rng: np.random.Generator):
    array = rng.integers(0, 2, (3, 1, 5)).astype(dtype)
    back = to_numpy(from_numpy(array, CPU))
    assert back.dtype == dtype
    np.testing.assert_array_equal(back, array)


@pytest.mark.parametrize("dtype", [ml_dtypes.int4, ml_dtypes.int2])
def test_negative_narrow_integers_keep_their_sign(dtype: type):
    array = np.array([-2, -1, 0, 1], np.int8).astype(dtype)
    assert stored(from_numpy(array, CPU)).tolist() == [-2, -1, 0, 1]


def test_scalars_and_views_survive():
    assert to_numpy(from_numpy(np.array(7, np.uint64), CPU)).shape == ()
    array = np.arange(12, dtype=ml_dtypes.bfloat16).reshape(3, 4).T
    np.testing.assert_array_equal(to_numpy(from_numpy(array, CPU)), array)


def test_the_copy_is_its_own():
    array = np.zeros(3, np.float32)
    tensor = from_numpy(array, CPU)
    array[0] = 1
    assert tensor[0] == 0


def test_text_is_refused():
    with pytest.raises(ModelError, match="element type that torch does not have"):
        from_numpy(np.array(["a"], object), CPU)


@pytest.mark.parametrize("dtype", [*BYTE_TYPES, *WIDE_TYPES, *NARROW_TYPES])
def test_onnx_types_go_both_ways(dtype: type):
    tensor = from_numpy(np.zeros(2, dtype), CPU)
    assert torch_type(onnx_type(tensor.dtype)) == tensor.dtype
    assert restored(stored(tensor), tensor.dtype).dtype == tensor.dtype


def all_halves() -> np.ndarray:
    return np.arange(2**16, dtype=np.uint16).view(np.float16)


@pytest.mark.parametrize("dtype", [*FLOAT8, ml_dtypes.float4_e2m1fn])
def test_narrow_floats_round_as_ml_dtypes_does(dtype: type):
    """Within the range; beyond it ml_dtypes gives NaN or infinity, which is the cast without saturation."""
    halves = all_halves()
    halves = halves[~np.isnan(halves)]
    with np.errstate(all="ignore"):
        want = halves.astype(dtype)
    got = to_numpy(convert(from_numpy(halves, CPU), from_numpy(want, CPU).dtype, saturate=False))
    np.testing.assert_array_equal(got.astype(np.float32), want.astype(np.float32))


@pytest.mark.parametrize("dtype", FLOAT8)
def test_saturation_is_at_the_largest_value(dtype: type):
    largest = float(ml_dtypes.finfo(dtype).max)
    x = torch.tensor([1e6, -1e6, torch.inf, -torch.inf, largest, torch.nan])
    got = to_numpy(convert(x, from_numpy(np.zeros(1, dtype), CPU).dtype)).astype(np.float64)
    np.testing.assert_array_equal(got, [largest, -largest, largest, -largest, largest, np.nan])


@pytest.mark.parametrize("dtype", [*FLOAT8, ml_dtypes.float8_e8m0fnu, ml_dtypes.float4_e2m1fn])
def test_every_code_has_the_value_of_ml_dtypes(dtype: type):
    codes = np.arange(16 if dtype == ml_dtypes.float4_e2m1fn else 256, dtype=np.uint8).view(dtype)
    got = convert(from_numpy(codes, CPU), torch.float32)
    np.testing.assert_array_equal(to_numpy(got), codes.astype(np.float32))


@pytest.mark.parametrize("value", [0.0, 1.0, 2.0**62, 2.0**63, 2.0**64 - 2048])
def test_large_floats_reach_uint64(value: float):
    got = convert(torch.tensor([value], dtype=torch.float64), torch.uint64)
    assert to_numpy(got)[0] == np.float64(value).astype(np.uint64)
