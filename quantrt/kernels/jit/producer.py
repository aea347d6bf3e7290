# SPDX-License-Identifier: Apache-2.0
"""One warp that loads the blocks of all tiles of a program into its ring; see kernels/gemm_hopper."""

# mypy: ignore-errors
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import mbarrier, tma

from quantrt.kernels.jit.functions import await_kernels_before
from quantrt.kernels.jit.ring import main_columns, next_stage, place_of

__all__ = ["produce"]


@gluon.jit
def produce(
    ring,
    x_desc,
    w_desc,
    rest_desc,
    M,
    HAS_TILE: gl.constexpr,
    sizes: gl.constexpr,
):
    """Load the blocks of all tiles of this program.

    Weights of its first blocks, where it has a tile for sure, come while kernels before this one still run.
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
    AHEAD: gl.constexpr = min(STAGES, STEPS) if HAS_TILE else 0
    tiles_m = gl.cdiv(M, BLOCK_M)
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
    for tile in range(gl.program_id(0), tiles_m * TILES_N, programs):
        tile_m, tile_n = place_of(tile, tiles_m, TILES_N, sizes[6])
        for k in range(gl.where(tile == gl.program_id(0), AHEAD, 0), STEPS):
            mbarrier.wait(empty.index(stage), parity)
            load_weights(ring, x_desc, w_desc, rest_desc, tile_n, k, stage, sizes)
            load_rows(ring, x_desc, tile_m, k, stage, sizes)
            stage, parity = next_stage(stage, parity, STAGES)


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
