# SPDX-License-Identifier: Apache-2.0
"""The product of few rows: its own source in Python, against float64."""

import math

import numpy as np
import pytest

from quantrt.kernels.few_rows import triton_kernel
from quantrt.kernels.gemm_hopper.spec import rows_in_order
from quantrt.kernels.jit import fragments, ring
from tests.kernels.gluon_on_cpu import Descriptor, Pointer, Rules, altered, run_program

EMPTY = -77777
BLOCK_K = 64


def product(
    M,
    N,
    K,
    *,
    tile=(64, 64),
    stages=2,
    run=8,
    seed=0,
    dtype=np.float16,
    is_gated=False,
    has_tensor=False,
    has_rows=False,
    module=triton_kernel,
):
    """x @ w^T * scale by the kernel, and in float64; of a gate the product of both halves."""
    generator = np.random.default_rng(seed)
    halves = 1 + is_gated
    x = generator.standard_normal((M, K)) * (9 if dtype == np.int8 else 1)
    w = generator.standard_normal((halves * N, K)) * (9 if dtype == np.int8 else 1)
    x, w = x.astype(dtype), w.astype(dtype)
    scale = generator.integers(1, 9, N).astype(np.float32)
    residual = generator.standard_normal((M, N)).astype(np.float32)
    of_rows = generator.standard_normal(M).astype(np.float32)
    y = np.full(M * N, EMPTY, np.float32)
    ordered = rows_in_order(w, halves * run)
    descriptors = Descriptor(x, (tile[0], BLOCK_K)), Descriptor(ordered, (tile[1], BLOCK_K), is_constant=True)
    operands = [Pointer(scale), *[Pointer(residual.reshape(-1))] * has_tensor, *[Pointer(of_rows)] * has_rows]
    kinds = ("constant", *["tensor"] * has_tensor, *["row"] * has_rows)
    arguments = (
        *(*descriptors, (Pointer(y),), operands),
        *(M, N, K, is_gated, kinds, (), (1,), ()),
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
            is_one_group=True,
            registers_of=lambda sums, operands, terms, program: (sums.astype(np.float32), *operands),
            evaluate=lambda program, r: (math.prod(r[: 1 + halves]) + sum(r[1 + halves :]),),
            stored=lambda program, output, results, *others: results[0],
        )
    expected = (x.astype(np.float64) @ w.astype(np.float64).T).reshape(M, N, halves).prod(2) * scale
    expected = expected + residual if has_tensor else expected
    return y.reshape(M, N), expected + of_rows[:, None] if has_rows else expected


def assert_near(got, want, *, ratio=1e-5):
    """Within a few dozen roundings of float32 of what is expected, and of sums as large as all of them."""
    rms = np.sqrt(np.square(want).mean())
    assert (np.abs(got - want) <= ratio * (np.abs(want) + rms)).all()


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
def test_products_of_odd_shapes(M, N, K, options):
    got, want = product(M, N, K, **options)
    assert_near(got, want)


def test_codes():
    got, want = product(70, 100, 200, dtype=np.int8, stages=2)
    np.testing.assert_array_equal(got, want.astype(np.float32))


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
