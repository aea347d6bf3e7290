# SPDX-License-Identifier: Apache-2.0
"""Unsigned arithmetic against numpy, exact integer products, and the corners of mod and pow."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("torch", reason="the torch operators need torch")

import torch

from quantrt.operators.element_types import from_numpy, to_numpy
from quantrt.operators.elementwise.arithmetic import add, div, maximum, minimum, mod, mul, pow_, sub
from quantrt.operators.elementwise.comparison import greater, less_or_equal
from quantrt.operators.products.integer import conv_integer, matmul_integer
from quantrt.operators.products.matmul import matmul

CPU = torch.device("cpu")
UNSIGNED = {16: np.uint16, 32: np.uint32, 64: np.uint64}


def tensors(a: int, b: int, bits: int) -> tuple[np.ndarray, np.ndarray]:
    dtype = UNSIGNED[bits]
    return np.array([a % 2**bits], dtype), np.array([max(b % 2**bits, 1)], dtype)


@given(st.integers(0, 2**64 - 1), st.integers(1, 2**64 - 1), st.sampled_from((16, 32, 64)))
def test_unsigned_arithmetic_is_numpys(a: int, b: int, bits: int):
    x, y = tensors(a, b, bits)
    tx, ty = from_numpy(x, CPU), from_numpy(y, CPU)
    for ours, theirs in (
        (add, np.add),
        (sub, np.subtract),
        (mul, np.multiply),
        (div, np.floor_divide),
        (mod, np.remainder),
        (maximum, np.maximum),
        (minimum, np.minimum),
    ):
        assert to_numpy(ours(tx, ty))[0] == theirs(x, y)[0], ours
    assert bool(greater(tx, ty)) == (x[0] > y[0])
    assert bool(less_or_equal(tx, ty)) == (x[0] <= y[0])


def test_integers_are_divided_towards_zero():
    assert div(torch.tensor([-7, 7]), torch.tensor([2, -2])).tolist() == [-3, -3]


def test_mod_has_the_sign_of_the_divisor_and_fmod_that_of_the_dividend():
    a, b = torch.tensor([-7, 7]), torch.tensor([3, -3])
    assert mod(a, b).tolist() == [2, -2]
    assert mod(a, b, fmod=1).tolist() == [-1, 1]
    assert torch.signbit(mod(torch.tensor([6.0]), torch.tensor([-3.0]))).item()


def test_pow_keeps_the_type_of_the_base():
    assert pow_(torch.tensor([4, 9]), torch.tensor([0.5, 0.5])).tolist() == [2, 3]
    assert pow_(torch.tensor([2.0]), torch.tensor([3])).dtype == torch.float32


def test_integer_products_are_exact_where_float32_is_not(rng: np.random.Generator):
    a = rng.integers(0, 256, (3, 4096)).astype(np.uint8)
    b = rng.integers(-128, 128, (4096, 5)).astype(np.int8)
    zero_a, zero_b = np.uint8(3), rng.integers(-8, 8, 5).astype(np.int8)
    want = (a.astype(np.int64) - 3) @ (b.astype(np.int64) - zero_b)
    got = matmul_integer(*(from_numpy(np.asarray(v), CPU) for v in (a, b, zero_a, zero_b)))
    np.testing.assert_array_equal(to_numpy(got), want)
    wide_x = torch.full((1, 512, 3, 3), 255, dtype=torch.uint8)
    wide_w = torch.full((1, 512, 3, 3), 255, dtype=torch.uint8)
    wide_w[0, 0, 0, 0] = 254
    assert conv_integer(wide_x, wide_w).item() == 255 * 255 * 512 * 9 - 255  # odd and above 2**24


@pytest.mark.parametrize(
    ("a", "b"),
    [
        ((3,), (3,)),
        ((3,), (3, 4)),
        ((2, 3), (3,)),
        ((2, 3), (3, 4)),
        ((5, 1, 2, 3), (6, 3, 4)),
        ((3,), (2, 3, 4)),
    ],
)
def test_products_of_devices_without_integer_kernels(
    a: tuple, b: tuple, rng: np.random.Generator, monkeypatch
):
    """The other road of matmul, taken here by hiding that the tensors are on the CPU."""
    x, y = rng.integers(-9, 9, a), rng.integers(-9, 9, b)
    hidden = type("Hidden", (torch.Tensor,), {"device": property(lambda self: torch.device("meta"))})
    got = matmul(torch.from_numpy(x).as_subclass(hidden), torch.from_numpy(y).as_subclass(hidden))
    np.testing.assert_array_equal(got.as_subclass(torch.Tensor).numpy(), np.matmul(x, y))
