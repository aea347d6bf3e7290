# SPDX-License-Identifier: Apache-2.0
"""One warp that loads the blocks of all tiles of a program into its ring, in Gluon; see kernels/gemm_hopper.

early: whether the program has a tile for sure, and whether tensors that finish tiles are fetched.
"""

# mypy: ignore-errors
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import mbarrier, tma

from quantrt.kernels.jit.fragments import fetch_tensors
from quantrt.kernels.jit.functions import await_kernels_before
from quantrt.kernels.jit.ring import main_columns, next_stage, place_of

__all__ = ["produce"]

FETCHED_TILES = gl.constexpr(3)
"""From the oldest unfinished tile to the one whose tensors are fetched: two are being finished."""


@gluon.jit
def produce(
    ring,
    x_desc,
    w_desc,
    rest_desc,
    slots,
    M,
    sizes: gl.constexpr,
    formula: gl.constexpr,
    early: gl.constexpr,
):
    """Load the blocks of all tiles of this program.

    Weights of its first blocks, where it has a tile for sure, come while kernels before this one still run.
    What finishes a tile, where it is fetched, is brought into L2 ahead of that.
    """
    x_ring, w_ring, rest_ring, full, empty = ring
    N: gl.constexpr = sizes[0]
    K: gl.constexpr = sizes[1]
    BLOCK_M: gl.constexpr = sizes[2]
    BLOCK_N: gl.constexpr = sizes[3]
    BLOCK_K: gl.constexpr = sizes[4]
    STAGES: gl.constexpr = sizes[5]
    TILES_N: gl.constexpr = (N * sizes[8] + BLOCK_N - 1) // BLOCK_N
    STEPS: gl.constexpr = (K + BLOCK_K - 1) // BLOCK_K
    HAS_TILE: gl.constexpr = early[0]
    FETCHED: gl.constexpr = early[1]
    AHEAD: gl.constexpr = min(STAGES, STEPS) if HAS_TILE else 0
    # Tiles from the one whose blocks are asked for back to the one whose end is.
    LAG: gl.constexpr = max(STAGES // STEPS - FETCHED_TILES, -1) if FETCHED else 0
    tiles_m = gl.cdiv(M, BLOCK_M)
    tiles = tiles_m * TILES_N
    programs = gl.num_programs(0)
    if HAS_TILE:
        first_m, first_n = place_of(gl.program_id(0), tiles_m, TILES_N, sizes[6])
    for i in gl.static_range(AHEAD):
        load_weights(ring, x_desc, w_desc, rest_desc, first_n, i, i, sizes)
    await_kernels_before()
    for i in gl.static_range(AHEAD):
        load_rows(ring, x_desc, first_m, i, i, sizes)
    stage = AHEAD % STAGES
    parity = 1 - AHEAD // STAGES
    for tile in range(gl.program_id(0), tiles + max(LAG, 0) * programs, programs):
        tile_m, tile_n = place_of(gl.minimum(tile, tiles - 1), tiles_m, TILES_N, sizes[6])
        for k in range(gl.where(tile == gl.program_id(0), AHEAD, 0), gl.where(tile < tiles, STEPS, 0)):
            mbarrier.wait(empty.index(stage), parity)
            load_weights(ring, x_desc, w_desc, rest_desc, tile_n, k, stage, sizes)
            load_rows(ring, x_desc, tile_m, k, stage, sizes)
            stage, parity = next_stage(stage, parity, STAGES)
        if FETCHED:
            later = tile - LAG * programs
            if (later >= 0) & (later < tiles):
                tile_m, tile_n = place_of(later, tiles_m, TILES_N, sizes[6])
                fetch_tensors(slots, tile_m, tile_n, M, sizes, formula)


@gluon.jit
def load_weights(ring, x_desc, w_desc, rest_desc, tile_n, k, stage, sizes: gl.constexpr):
    """Begin a block: all of its bytes are expected, and those of the weights asked for."""
    x_ring, w_ring, rest_ring, full, empty = ring
    BLOCK_N: gl.constexpr = sizes[3]
    MAIN_N: gl.constexpr = main_columns(BLOCK_N)
    W_BYTES: gl.constexpr = w_desc.block_type.nbytes * BLOCK_N // MAIN_N
    ready = full.index(stage)
    mbarrier.expect(ready, x_desc.block_type.nbytes + W_BYTES)
    tma.async_copy_global_to_shared(w_desc, [tile_n * BLOCK_N, k * sizes[4]], ready, w_ring.index(stage))
    if BLOCK_N > MAIN_N:
        tma.async_copy_global_to_shared(
            rest_desc, [tile_n * BLOCK_N + MAIN_N, k * sizes[4]], ready, rest_ring.index(stage)
        )


@gluon.jit
def load_rows(ring, x_desc, tile_m, k, stage, sizes: gl.constexpr):
    """Ask for the rest of a block."""
    x_ring, w_ring, rest_ring, full, empty = ring
    tma.async_copy_global_to_shared(
        x_desc, [tile_m * sizes[2], k * sizes[4]], full.index(stage), x_ring.index(stage)
    )
