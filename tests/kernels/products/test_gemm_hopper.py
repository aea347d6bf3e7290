# SPDX-License-Identifier: Apache-2.0
"""The kernel with a producer and two consumers: its own source in Python, at random interleavings."""

import math

import numpy as np
import pytest

from quantrt.errors import DeviceError
from quantrt.kernels.gemm_hopper import triton_kernel
from quantrt.kernels.gemm_hopper.spec import HopperTile, kernel_of, rows_in_order
from quantrt.kernels.jit import block_sums, fragments, producer, ring, slices
from quantrt.runtime.cuda.device.launcher import InterpreterLauncher
from tests.kernels.gluon_on_cpu import (
    Descriptor,
    Pointer,
    Rules,
    altered,
    four_raw_floats,
    run_program,
)
from tests.kernels.products.gemm_problems import plain_codes

EMPTY = -77777
BLOCK_K = 16


def product(
    M,
    N,
    K,
    *,
    tile=(64, 64),
    stages=3,
    programs=2,
    run=4,
    seed=0,
    dtype=np.int8,
    group_m=2,
    ahead=(1, 1),
    has_tensor=False,
    has_rows=False,
    is_looped=False,
    is_sliced=False,
    is_shared=False,
    promoted=0,
    is_gated=False,
    pitches=(),
    live=None,
    module=triton_kernel,
    slices=slices,
    producer=producer,
    block_sums=block_sums,
):
    """x @ w^T * scale by the kernel, and by numpy."""
    generator = np.random.default_rng(seed)
    x = generator.integers(-9, 9, (M, K)).astype(dtype)
    halves = 2 if is_gated else 1
    w = generator.integers(-9, 9, (halves * N, K)).astype(dtype)
    scale = generator.integers(1, 9, N).astype(np.float32)
    of_tensor, of_y = (pitch or N for pitch in (*pitches, 0, 0, 0)[1:3])
    y = np.full(M * of_y, EMPTY, np.float32)
    block_m, block_n = tile
    kinds = ("constant", *["tensor"] * has_tensor, *["row"] * has_rows)
    residual = generator.integers(-9, 9, (M, of_tensor)).astype(np.int8)
    of_rows = generator.integers(-9, 9, M).astype(np.float32)
    others = [residual.reshape(-1)] * has_tensor + [of_rows] * has_rows
    sizes = (
        N,
        K,
        is_gated,
        kinds,
        (),
        (1,),
        (*pitches[: 1 + has_tensor], *[0] * has_rows, *pitches[-1:]) if pitches else (),
        run,
        block_m,
        block_n,
        BLOCK_K,
        stages,
        group_m,
        *ahead,
        is_looped,
        is_sliced,
        is_shared,
        promoted,
    )
    ordered = rows_in_order(w, halves * run)
    main, rest = HopperTile(block_m, block_n, stages).columns
    matrices = (
        Descriptor(x, (block_m, BLOCK_K)),
        Descriptor(ordered, (main, BLOCK_K), is_constant=True),
        Descriptor(ordered, (rest, BLOCK_K), is_constant=True),
    )
    arguments = (
        *matrices,
        (Pointer(y),),
        (Pointer(scale), *(Pointer(other) for other in others)),
        M,
        0 if live is None else Pointer(np.array([live], np.int32)),
        live is not None,
        *sizes,
    )
    for program in range(programs):
        run_program(
            module,
            "gemm_hopper",
            arguments,
            seed=seed + 1000 * program,
            program=program,
            programs=programs,
            others=(fragments, ring, block_sums, slices, producer),
            reads_once=not (is_sliced or is_shared),
            four_raw_floats=four_raw_floats,
            slice_of=lambda w_ring, stage, number, _, shape: w_ring.index(stage).slice(
                number * shape[0], shape[0]
            ),
            registers_of=lambda sums, operands, terms, program: (sums.astype(np.float32), *operands),
            sums_to_float=lambda sums, terms: sums.astype(np.float32),
            evaluate=lambda program, r: (sum(r[1 + halves :], start=math.prod(r[: 1 + halves])),),
            stored=lambda program, output, results, element, is_finite: results[0],
        )
    sums = (x.astype(np.float32) @ w.astype(np.float32).T).reshape(M, N, halves)
    expected = sums.prod(2) * scale
    expected = expected + of_rows[:, None] if has_rows else expected
    assert (y.reshape(M, of_y)[:, N:] == EMPTY).all()
    return y.reshape(M, of_y)[:, :N], expected + residual[:, :N] if has_tensor else expected


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize(
    ("M", "N", "K", "options"),
    [
        (64, 64, 16, {"programs": 1}),  # one tile of one block: the second consumer has nothing to do
        (64, 64, 160, {"programs": 1}),  # the ring goes round and round in one tile
        (100, 130, 40, {}),  # nothing is a multiple of its block
        (500, 260, 48, {"programs": 3}),  # tiles that end at different stages
        (300, 200, 16, {"stages": 2}),  # one block a tile: a consumer's blocks are never neighbours
        (300, 200, 64, {"stages": 2}),
        (1, 256, 80, {"tile": (128, 128), "run": 16}),
        (257, 384, 64, {"tile": (128, 128), "run": 8, "stages": 4}),
        (200, 512, 32, {"tile": (64, 256), "run": 16}),
        (300, 100, 48, {"dtype": np.float32}),
        (300, 200, 48, {"tile": (128, 128), "is_gated": True, "run": 8, "has_tensor": True}),
        (300, 100, 48, {"tile": (64, 64), "is_gated": True, "run": 8}),
        (300, 200, 48, {"tile": (128, 128), "ahead": (0, 0)}),
        (300, 200, 48, {"tile": (128, 128), "run": 8, "has_tensor": True, "ahead": (1, 3)}),
        (300, 200, 48, {"tile": (128, 64), "run": 8, "has_tensor": True, "ahead": (9, 9)}),
        (300, 340, 48, {"tile": (128, 160), "run": 8, "has_tensor": True}),
        (
            300,
            200,
            48,
            {"tile": (128, 128), "run": 8, "ahead": (1, 2), "has_tensor": True, "is_looped": True},
        ),
        (100, 130, 16, {"tile": (64, 64), "run": 16, "ahead": (1, 1), "has_tensor": True, "is_looped": True}),
        (300, 340, 48, {"tile": (128, 160), "run": 8, "ahead": (1, 2), "is_looped": True}),
        (500, 260, 16, {"tile": (128, 128), "run": 8, "is_sliced": True, "programs": 3}),
        (500, 260, 16, {"tile": (128, 256), "run": 16, "has_tensor": True, "is_sliced": True, "stages": 4}),
        (
            500,
            260,
            16,
            {
                "tile": (64, 128),
                "run": 8,
                "has_tensor": True,
                "is_sliced": True,
                "stages": 6,
            },
        ),
        (500, 260, 40, {"tile": (64, 128), "run": 8, "has_tensor": True, "stages": 2}),
        (
            500,
            260,
            16,
            {
                "tile": (64, 128),
                "run": 8,
                "has_tensor": True,
                "is_looped": True,
                "stages": 3,
            },
        ),
        (300, 200, 32, {"tile": (64, 64), "stages": 4, "has_tensor": True, "is_sliced": True}),
        (300, 300, 40, {"tile": (128, 256), "run": 8, "stages": 7, "has_tensor": True, "is_sliced": True}),
        (300, 200, 16, {"tile": (64, 64), "stages": 2, "dtype": np.float32, "is_sliced": True}),
        (100, 130, 40, {"stages": 6, "has_rows": True, "is_sliced": True}),
        (300, 340, 48, {"tile": (128, 96), "run": 4, "stages": 2, "dtype": np.float32}),
        (100, 130, 40, {"has_tensor": True, "pitches": (0, 160, 256)}),
        (100, 128, 40, {"pitches": (0, 0, 200)}),
        (100, 130, 40, {"has_rows": True}),
        (300, 340, 48, {"tile": (128, 160), "run": 8, "ahead": (1, 2), "has_rows": True}),
        (300, 200, 48, {"tile": (128, 128), "ahead": (2, 0), "has_rows": True, "has_tensor": True}),
        (300, 100, 48, {"tile": (64, 64), "is_gated": True, "run": 8, "has_rows": True}),
        (
            300,
            200,
            48,
            {"tile": (128, 128), "ahead": (1, 2), "has_rows": True, "has_tensor": True, "is_looped": True},
        ),
        (128, 64, 16, {"tile": (128, 64), "programs": 1, "is_shared": True}),  # one tile of one block
        (300, 200, 80, {"tile": (128, 64), "is_shared": True, "stages": 4}),
        (60, 200, 160, {"tile": (128, 128), "is_shared": True}),  # nothing for the second consumer to store
        (
            300,
            340,
            48,
            {"tile": (128, 160), "run": 8, "has_tensor": True, "ahead": (2, 5), "is_shared": True},
        ),
        (
            300,
            340,
            48,
            {"tile": (128, 160), "run": 8, "has_tensor": True, "is_looped": True, "is_shared": True},
        ),
        (300, 200, 16, {"tile": (256, 64), "stages": 2, "is_gated": True, "run": 8, "is_shared": True}),
        (300, 200, 48, {"tile": (128, 128), "has_rows": True, "has_tensor": True, "is_shared": True}),
    ],
)
def test_every_element_is_that_of_the_reference(M, N, K, options, seed):
    found, expected = product(M, N, K, seed=seed, **options)
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("options", [{}, {"tile": (128, 64), "is_shared": True}], ids=["turns", "shared"])
@pytest.mark.parametrize("live", [0, 1, 64, 130, 500, 900])
def test_rows_behind_the_last_that_counts_are_left_alone(live, options):
    found, expected = product(500, 260, 48, programs=3, live=live, **options)
    np.testing.assert_array_equal(found[:live], expected[:live])
    assert (found[live:] == -77777).all()


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("    await_kernels_before()\n    block", "    block"),
        ("turn = 1 - CONSUMER", "turn = CONSUMER"),
        ("mbarrier.wait(turns.index(CONSUMER), turn)", "pass"),
        ("block += TURNS * STEPS", "block += STEPS"),
    ],
)
def test_a_wrong_protocol_is_found(right, wrong, tmp_path):
    module = altered(triton_kernel, right, wrong, tmp_path)
    with pytest.raises(Rules):
        for seed in range(10):
            product(300, 200, 80, seed=seed, module=module)


PROMOTED = {"tile": (128, 128), "stages": 4, "is_shared": True, "dtype": np.float32}


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize(
    ("M", "N", "K", "options"),
    [
        (300, 200, 160, {}),  # two blocks first, then two and two
        (300, 200, 176, {"promoted": 4, "stages": 6}),  # four first, four, and three that are left
        (300, 200, 128, {"promoted": 3, "programs": 1}),
        (300, 200, 160, {"promoted": 1, "stages": 2}),
        (100, 130, 40, {"promoted": 4}),  # fewer blocks than are promoted at a time
        (300, 340, 200, {"tile": (128, 160), "run": 8, "has_tensor": True, "stages": 5, "promoted": 4}),
        (500, 260, 144, {"programs": 3, "is_looped": True, "has_tensor": True, "run": 8}),
        (300, 200, 160, {"is_gated": True, "run": 8}),
        (300, 200, 160, {"live": 130}),
    ],
)
def test_sums_are_promoted(M, N, K, options, seed):
    options = {"promoted": 2, **PROMOTED, **options}
    found, expected = product(M, N, K, seed=seed, **options)
    rows = options.get("live", M)
    np.testing.assert_array_equal(found[:rows], expected[:rows])


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("warpgroup_mma_wait(1,", "warpgroup_mma_wait(2,"),
        ("count=1, pred=k > 0", "count=1, pred=k > 1"),
        ("stage_before(stage, STAGES)), count=1, pred", "stage), count=1, pred"),
        ("mbarrier.wait(full.index(stage), parity)", "mbarrier.wait(full.index(stage), parity ^ 1)"),
        ("mbarrier.arrive(ring[4].index(stage_before(stage, sizes[5])), count=1)", "pass"),
    ],
)
@pytest.mark.parametrize(
    "options",
    [{}, {"tile": (128, 64), "is_shared": True}, {"promoted": 2, **PROMOTED}],
    ids=["turns", "shared", "promoted"],
)
def test_a_wrong_protocol_of_sums_is_found(right, wrong, options, tmp_path):
    module = altered(block_sums, right, wrong, tmp_path)
    with pytest.raises(Rules):
        for seed in range(10):
            product(300, 200, 80, seed=seed, block_sums=module, **options)


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("pred=is_first)", "pred=False)"),
        ("min(BLOCKS, STEPS, max(sizes[5] - 2, 1))", "min(BLOCKS, STEPS)"),
    ],
)
def test_a_consumer_that_waits_for_the_other_is_found(right, wrong, tmp_path):
    """Nobody multiplies the first blocks, or more of them than the ring has."""
    module = altered(block_sums, right, wrong, tmp_path)
    with pytest.raises(Rules):
        for seed in range(10):
            product(300, 200, 160, seed=seed, block_sums=module, promoted=8, **PROMOTED)


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("parity = 1 - AHEAD // STAGES", "parity = AHEAD // STAGES"),
        ("parity = 1 - AHEAD // STAGES", "parity = 1"),
        ("gl.where(tile == gl.program_id(0), AHEAD, 0)", "0"),
        ("        load_rows(ring, x_desc, first_m, i, i, sizes)", "        pass"),
        ("    await_kernels_before()\n    for i", "    for i"),
    ],
)
def test_a_wrong_protocol_of_the_producer_is_found(right, wrong, tmp_path):
    module = altered(producer, right, wrong, tmp_path)
    with pytest.raises(Rules):
        for seed in range(10):
            product(300, 200, 80, seed=seed, producer=module)


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("block += 2 * STEPS", "block += STEPS"),
        ("mbarrier.wait(full.index(stage), parity)", "mbarrier.wait(full.index(stage), parity ^ 1)"),
        ("mbarrier.wait(full.index(stage), parity)", "pass"),
        ("mbarrier.arrive(empty.index(stage), count=1)", "pass"),
    ],
)
def test_a_wrong_protocol_of_slices_is_found(right, wrong, tmp_path):
    module = altered(slices, right, wrong, tmp_path)
    with pytest.raises(Rules):
        for seed in range(10):
            product(300, 200, 32, seed=seed, stages=5, is_sliced=True, slices=module)


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("count=1 + SHARED", "count=1"),
        ("TURNS: gl.constexpr = 1 if SHARED else 2", "TURNS: gl.constexpr = 2"),
    ],
)
def test_a_wrong_protocol_of_shared_tiles_is_found(right, wrong, tmp_path):
    module = altered(triton_kernel, right, wrong, tmp_path)
    with pytest.raises(Rules):
        for seed in range(10):
            product(300, 200, 80, seed=seed, tile=(128, 64), is_shared=True, module=module)


def test_rows_in_order_are_those_of_the_fragments():
    w = np.arange(70)[:, None] * np.ones((1, 3), np.int64)
    for run in (4, 8, 16):
        rows = rows_in_order(w, run)[:, 0]
        assert len(rows) % (4 * run) == 0
        assert sorted(rows[rows > 0]) == list(range(1, 70))
        for column, row in enumerate(rows):
            group, place = divmod(column, 4 * run)
            thread, step = place % 8 // 2, place // 8
            actual = group * 4 * run + run * thread + 2 * step + place % 2
            assert row == (actual if actual < 70 else 0)


def test_on_a_cpu_it_is_refused():
    spec = kernel_of(plain_codes(128, 128, 128), HopperTile(64, 64, 2))
    with pytest.raises(DeviceError, match="in Gluon, which has no interpreter"):
        InterpreterLauncher(spec)
