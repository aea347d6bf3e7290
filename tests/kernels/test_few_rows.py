# SPDX-License-Identifier: Apache-2.0
"""The product of few rows, normalized or not: its own source in Python, against float64."""

import math

import numpy as np
import pytest

from quantrt.kernels.few_rows import triton_kernel
from quantrt.kernels.fragments import triton_kernel as fragments
from quantrt.kernels.gemm_hopper.spec import rows_in_order
from quantrt.kernels.ring import triton_kernel as ring
from tests.kernels.gluon_on_cpu import Descriptor, Pointer, Rules, altered, run_program

EMPTY = -77777
BLOCK_K = 64
EPSILON = 1e-5


def product(
    M,
    N,
    K,
    *,
    norm="layer",
    tile=(64, 64),
    stages=2,
    run=8,
    seed=0,
    x=None,
    dtype=np.float16,
    is_gated=False,
    has_tensor=False,
    has_rows=False,
    module=triton_kernel,
):
    """norm(x) @ w^T * scale by the kernel, and in float64; of a gate the product of both halves."""
    generator = np.random.default_rng(seed)
    halves = 1 + is_gated
    x = generator.standard_normal((M, K)) * (9 if dtype == np.int8 else 1) if x is None else x
    w = generator.standard_normal((halves * N, K)) * (9 if dtype == np.int8 else 1)
    x, w = x.astype(dtype), w.astype(dtype)
    scale = generator.integers(1, 9, N).astype(np.float32)
    residual = generator.standard_normal((M, N)).astype(np.float32)
    of_rows = generator.standard_normal(M).astype(np.float32)
    y = np.full(M * N, EMPTY, np.float32)
    ordered = rows_in_order(w, halves * run)
    descriptors = Descriptor(x, (tile[0], BLOCK_K)), Descriptor(ordered, (tile[1], BLOCK_K), is_constant=True)
    sums = ordered.astype(np.float64).sum(1).astype(np.float32)
    of_norm = (Pointer(x.reshape(-1)), Pointer(sums)) if norm else (0, 0)
    operands = [Pointer(scale), *[Pointer(residual.reshape(-1))] * has_tensor, *[Pointer(of_rows)] * has_rows]
    kinds = ("constant", *["tensor"] * has_tensor, *["row"] * has_rows)
    arguments = (
        *(*descriptors, *of_norm, Pointer(y), 0, 0, 0, *operands, *[0] * (12 - len(operands))),
        *(M, K // 8 if norm else 0, 8, N, K, is_gated, norm, EPSILON, kinds, (), (1,), ()),
        *(run, *tile, BLOCK_K, stages, 2),
    )
    tiles = -(-M // tile[0]) * -(-N * halves // tile[1])
    for program in range(tiles):
        run_program(
            module,
            "few_rows",
            arguments,
            seed=seed + 1000 * program,
            program=program,
            programs=tiles,
            others=(fragments, ring),
            reads_once=False,
            is_one_group=True,
            registers_of=lambda sums, operands, terms, program: (sums.astype(np.float32), *operands),
            evaluate=lambda program, r: (math.prod(r[: 1 + halves]) + sum(r[1 + halves :]),),
            stored=lambda program, output, results, *others: results[0],
        )
    rows = x.astype(np.float64)
    rows = rows - rows.mean(1, keepdims=True) if norm == "layer" else rows
    rows = rows / np.sqrt(np.square(rows).mean(1, keepdims=True) + EPSILON) if norm else rows
    expected = (rows @ w.astype(np.float64).T).reshape(M, N, halves).prod(2) * scale
    expected = expected + residual if has_tensor else expected
    return y.reshape(M, N), expected + of_rows[:, None] if has_rows else expected


def assert_near(got, want, *, ratio=1e-5):
    """Within a few dozen roundings of float32 of what is expected, and of sums as large as all of them."""
    rms = np.sqrt(np.square(want).mean())
    assert (np.abs(got - want) <= ratio * (np.abs(want) + rms)).all()


@pytest.mark.parametrize("norm", ["", "rms", "layer"])
@pytest.mark.parametrize(
    ("M", "N", "K", "options"),
    [
        (64, 64, 64, {}),
        (1, 64, 128, {"stages": 2}),
        (7, 41, 200, {"stages": 3}),
        (129, 130, 72, {"stages": 2, "has_tensor": True}),
        (65, 96, 520, {"tile": (64, 32), "stages": 3, "run": 8}),
        (100, 200, 448, {"tile": (64, 128), "stages": 4, "has_tensor": True}),
        (70, 100, 640, {"stages": 10, "has_rows": True}),
        (70, 50, 136, {"is_gated": True, "run": 4, "has_tensor": True}),
    ],
)
def test_products_of_odd_shapes(M, N, K, options, norm):
    got, want = product(M, N, K, norm=norm, **options)
    assert_near(got, want)


def test_codes():
    got, want = product(70, 100, 200, norm="", dtype=np.int8, stages=2)
    np.testing.assert_array_equal(got, want.astype(np.float32))


def test_rows_far_from_zero_and_with_outliers_keep_their_digits():
    """Means of 40 deviations, and elements a hundred times as large as the others, the first among them."""
    x = np.random.default_rng(1).standard_normal((64, 768))
    x[:16] += 40.0
    x[16:32, 5] = 300.0
    x[32:48, 0] = -300.0
    x[48:] *= 1e-3
    got, want = product(64, 64, 768, stages=4, x=x)
    # Of the third rows, whose first element is the outlier: 768 * 2^-24 and more, half of a rounding to fp16.
    assert_near(got, want, ratio=2e-4)


def test_a_row_without_variance_is_zero_before_the_shift():
    got, _ = product(3, 32, 128, x=np.full((3, 128), 5.0), tile=(64, 32))
    assert np.abs(got).max() <= 0.1, "2^-24 of sums of 640, over the root of epsilon"


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("sums = warpgroup_mma_wait(1, deps=(sums,))", "pass"),
        (
            "tile_m * sizes[2], k - 1 + STAGES, (k - 1) % STAGES",
            "tile_m * sizes[2], k - 1 + STAGES, k % STAGES",
        ),
        ("(k // STAGES) & 1", "0"),
        ("    await_kernels_before()\n", ""),
    ],
    ids=["a block that is still multiplied", "another stage", "another round", "too early"],
)
def test_the_machine_notices_what_is_out_of_turn(right, wrong, tmp_path):
    module = altered(triton_kernel, right, wrong, tmp_path)
    with pytest.raises((Rules, AssertionError)):
        for seed in range(4):
            got, want = product(64, 64, 512, stages=3, seed=seed, module=module)
            assert_near(got, want)
