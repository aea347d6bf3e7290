# SPDX-License-Identifier: Apache-2.0
"""Tensors on numpy's memory, and memory formats."""

import gc

import ml_dtypes
import numpy as np
import pytest
import torch

from quantrt.errors import ModelError
from quantrt.runtime.cuda.tensors import empty_tensor, is_dense, shaped, tensor_on, torch_dtype


@pytest.mark.parametrize(
    "dtype",
    [np.float32, np.float16, np.float64, np.int8, np.int64, np.uint16, np.bool_, ml_dtypes.bfloat16,
     ml_dtypes.float8_e4m3fn, np.complex128],
)  # fmt: skip
def test_an_array_is_shared_whether_or_not_it_may_be_written_to(dtype, rng):
    array = (rng.standard_normal((3, 5)) * 3).astype(dtype)
    array.setflags(write=False)
    tensor = tensor_on(array)
    assert tensor.dtype == torch_dtype(np.dtype(dtype).name)
    assert tensor.data_ptr() == array.ctypes.data
    assert bytes(tensor.contiguous().view(torch.uint8).reshape(-1).tolist()) == array.tobytes()


def test_the_array_lives_as_long_as_the_tensor():
    tensor = tensor_on(np.arange(100_000, dtype=np.float32) + 1)
    gc.collect()
    assert float(tensor.sum()) == pytest.approx(100_000 * 100_001 / 2, rel=1e-6)


@pytest.mark.parametrize(
    "array", [np.zeros((0, 3), np.float32), np.array(7, np.int64), np.zeros((2, 0), np.int8)]
)
def test_empty_and_scalar_arrays(array):
    tensor = tensor_on(array)
    assert tuple(tensor.shape) == array.shape
    assert tensor.tolist() == array.tolist()


def test_gaps_and_foreign_byte_order_are_copied():
    array = np.arange(24, dtype=np.float32).reshape(4, 6)
    for odd in (array[::2, ::3], array.T, array[::-1], array.astype(">f4")):
        assert tensor_on(odd).tolist() == odd.tolist()


def test_text_is_no_tensor():
    with pytest.raises(ModelError, match="text"):
        tensor_on(np.array(["a"]))


def test_unknown_types_are_named():
    with pytest.raises(ModelError, match="element type") as error:
        torch_dtype("nn")
    assert error.value.got == "'nn'"


@pytest.mark.parametrize(
    "shape", [(2, 3), (2, 3, 5), (2, 3, 5, 7), (1, 2, 3, 4, 5), (0, 3, 2, 2), (1, 1, 1, 1)]
)
def test_the_two_ways_to_memory_agree(shape):
    fresh = empty_tensor(shape, torch.float16, torch.device("cpu"), channels_last=True)
    memory = torch.zeros(4096, dtype=torch.uint8)
    placed = shaped(memory, shape, torch.float16, channels_last=True)
    assert tuple(fresh.shape) == tuple(placed.shape) == shape
    assert fresh.stride() == placed.stride()
    assert placed.data_ptr() == memory.data_ptr() or placed.numel() == 0
    if len(shape) == 4:
        assert fresh.is_contiguous(memory_format=torch.channels_last)


def test_dense_means_without_gaps():
    x = torch.empty(2, 3, 4)
    dense = [x, x.permute(2, 0, 1), x[:1], torch.empty(()), torch.empty(0, 3), x[:, :, :1][:, :1], x.mT]
    gappy = [x[:, 1:], x[..., ::2], x[:1].expand(5, 3, 4)]
    assert [is_dense(tensor) for tensor in dense[:5]] == [True] * 5
    assert not is_dense(dense[5])  # two elements, twelve apart
    assert is_dense(dense[6])
    assert [is_dense(tensor) for tensor in gappy] == [False] * 3
