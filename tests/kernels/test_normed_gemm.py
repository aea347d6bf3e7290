# SPDX-License-Identifier: Apache-2.0
"""The product that normalizes the rows it reads: its own source in Python, against float64."""

import numpy as np
import pytest

from quantrt.kernels.fragments import triton_kernel as fragments
from quantrt.kernels.gemm_hopper.spec import rows_in_order
from quantrt.kernels.normed_gemm import triton_kernel
from quantrt.kernels.ring import triton_kernel as ring
from tests.kernels.gluon_on_cpu import Descriptor, Pointer, Rules, altered, run_program

EMPTY = -77777
BLOCK_K = 64
EPSILON = 1e-5


def product(
    M, N, K, *, tile=(64, 64), stages=2, run=8, seed=0, is_centred=True, x=None, module=triton_kernel
):
    """norm(x) @ w^T * scale by the kernel, and in float64."""
    generator = np.random.default_rng(seed)
    x = generator.standard_normal((M, K)) if x is None else x
    x, w = x.astype(np.float16), generator.standard_normal((N, K)).astype(np.float16)
    scale = generator.integers(1, 9, N).astype(np.float32)
    y = np.full(M * N, EMPTY, np.float32)
    ordered = rows_in_order(w, run)
    descriptors = Descriptor(x, (tile[0], BLOCK_K)), Descriptor(ordered, (tile[1], BLOCK_K), is_constant=True)
    sums = ordered.astype(np.float64).sum(1).astype(np.float32)
    formula = (("constant",), (), (1,), ())
    arguments = (
        *(*descriptors, Pointer(x.reshape(-1)), Pointer(sums), Pointer(y), 0, 0, 0),
        *(Pointer(scale), *[0] * 11, M, K // 8, 8, N, K, EPSILON, is_centred),
        *(*formula, run, *tile, BLOCK_K, stages, 2),
    )
    tiles = -(-M // tile[0]) * -(-N // tile[1])
    for program in range(tiles):
        run_program(
            module,
            "normed_gemm",
            arguments,
            seed=seed + 1000 * program,
            program=program,
            programs=tiles,
            others=(fragments, ring),
            reads_once=False,
            is_one_group=True,
            registers_of=lambda sums, operands, terms, program: (sums, *operands),
            evaluate=lambda program, registers: (registers[0] * registers[1],),
            stored=lambda program, output, results, *others: results[0],
        )
    rows = x.astype(np.float64)
    rows = rows - rows.mean(1, keepdims=True) if is_centred else rows
    rows /= np.sqrt(np.square(rows).mean(1, keepdims=True) + EPSILON)
    return y.reshape(M, N), rows @ w.astype(np.float64).T * scale


def assert_near(got, want, *, ratio=1e-5):
    """Within a few dozen roundings of float32 of what is expected, and of sums as large as all of them."""
    rms = np.sqrt(np.square(want).mean())
    assert (np.abs(got - want) <= ratio * (np.abs(want) + rms)).all()


@pytest.mark.parametrize("is_centred", [True, False])
@pytest.mark.parametrize(
    ("M", "N", "K", "options"),
    [
        (64, 64, 64, {}),
        (1, 64, 128, {"stages": 2}),
        (7, 41, 200, {"stages": 3}),
        (129, 130, 72, {"stages": 2}),
        (65, 96, 520, {"tile": (64, 32), "stages": 3, "run": 8}),
        (100, 200, 448, {"tile": (64, 128), "stages": 4}),
        (70, 100, 640, {"stages": 10}),
    ],
)
def test_rows_are_normalized_as_they_are_multiplied(M, N, K, options, is_centred):
    got, want = product(M, N, K, is_centred=is_centred, **options)
    assert_near(got, want)


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
            "tile_m * BLOCK_M, k - 1 + STAGES, (k - 1) % STAGES",
            "tile_m * BLOCK_M, k - 1 + STAGES, k % STAGES",
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
