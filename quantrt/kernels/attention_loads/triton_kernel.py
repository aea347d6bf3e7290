# SPDX-License-Identifier: Apache-2.0
"""Queries, keys, values and masks of all tiles of a program of attention, asked for one block at a time.

asked: (tile, block, sample, head) of the block that is asked for next. The blocks of a tile come with the
last keys first, `last` is the number of the first of them; see kernels/attention_short.
"""

# mypy: ignore-errors
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import mbarrier, tma

from quantrt.kernels.attention_fragments.triton_kernel import next_stage
from quantrt.kernels.functions.triton_kernel import await_kernels_before

__all__ = ["ROWS", "ask_block", "ask_queries", "first_asked", "produce", "whole_blocks"]

ROWS = gl.constexpr(128)
"""Queries of a tile."""


@gluon.jit
def first_asked(tiles, H):
    """The first block of the program's first tile, of `tiles` tiles of queries for each head."""
    tile = gl.program_id(0)
    return tile, tile * 0, tile // tiles // H, tile // tiles % H


@gluon.jit
def ask_block(asked, stage, rings, full, descs, lengths, tiles, last, sizes: gl.constexpr):
    """Ask for a block, into a stage that nothing reads any more; none behind the last. What comes next."""
    tile, block, sample, head = asked
    _, k_ring, v_ring, mask_ring = rings
    _, k_desc, v_desc, masks = descs
    mask_desc, mask_b, mask_h = masks
    B, H, S, T = lengths
    GROUPS: gl.constexpr = sizes[0]
    MASK_BYTES: gl.constexpr = mask_desc.block_type.nbytes if sizes[7] else 0
    BLOCK_BYTES: gl.constexpr = k_desc.block_type.nbytes + v_desc.block_type.nbytes + MASK_BYTES
    is_there = tile < B * H * tiles
    key = (last - block) * sizes[2]
    there = full.index(stage)
    mbarrier.expect(there, BLOCK_BYTES, pred=is_there)
    if sizes[7]:
        place = [sample * mask_b, head * mask_h, 0, key]
        tma.async_copy_global_to_shared(mask_desc, place, there, mask_ring.index(stage), pred=is_there)
    place = [sample, head // GROUPS, key, 0]
    tma.async_copy_global_to_shared(k_desc, place, there, k_ring.index(stage), pred=is_there)
    tma.async_copy_global_to_shared(v_desc, place, there, v_ring.index(stage), pred=is_there)
    block += 1
    if block > last:
        block = block * 0
        tile += gl.num_programs(0)
        sample = tile // tiles // H
        head = tile // tiles % H
    return tile, block, sample, head


@gluon.jit
def ask_queries(tile, q_tile, q_full, q_desc, lengths, tiles):
    """Ask for the queries of a tile, if there is one."""
    B, H, S, T = lengths
    is_there = tile < B * H * tiles
    there = q_full.index(0)
    mbarrier.expect(there, q_desc.block_type.nbytes, pred=is_there)
    place = [tile // tiles // H, tile // tiles % H, tile % tiles * ROWS, 0]
    tma.async_copy_global_to_shared(q_desc, place, there, q_tile.index(0), pred=is_there)


@gluon.jit
def produce(rings, barriers, descs, lengths, sizes: gl.constexpr):
    """Load queries, keys, values and what is masked of all tiles of this program."""
    q_tile, k_ring, v_ring, mask_ring = rings
    full, empty, q_full, q_empty = barriers
    q_desc, k_desc, v_desc, masks = descs
    mask_desc, mask_b, mask_h = masks
    B, H, S, T = lengths
    GROUPS: gl.constexpr = sizes[0]
    BLOCK_N: gl.constexpr = sizes[2]
    MASK_BYTES: gl.constexpr = mask_desc.block_type.nbytes if sizes[7] else 0
    BLOCK_BYTES: gl.constexpr = k_desc.block_type.nbytes + v_desc.block_type.nbytes + MASK_BYTES
    tiles = gl.cdiv(S, ROWS)
    whole = whole_blocks(T, BLOCK_N, sizes[6])
    await_kernels_before()
    stage = 0
    parity = 1
    q_parity = 1
    for tile in range(gl.program_id(0), B * H * tiles, gl.num_programs(0)):
        sample = tile // tiles // H
        head = tile // tiles % H
        mbarrier.wait(q_empty.index(0), q_parity)
        q_parity = q_parity ^ 1
        mbarrier.expect(q_full.index(0), q_desc.block_type.nbytes)
        tma.async_copy_global_to_shared(
            q_desc, [sample, head, tile % tiles * ROWS, 0], q_full.index(0), q_tile.index(0)
        )
        for i in range(whole + 1):
            key = (whole - i) * BLOCK_N
            mbarrier.wait(empty.index(stage), parity)
            there = full.index(stage)
            mbarrier.expect(there, BLOCK_BYTES)
            if sizes[7]:
                tma.async_copy_global_to_shared(
                    mask_desc, [sample * mask_b, head * mask_h, 0, key], there, mask_ring.index(stage)
                )
            tma.async_copy_global_to_shared(
                k_desc, [sample, head // GROUPS, key, 0], there, k_ring.index(stage)
            )
            tma.async_copy_global_to_shared(
                v_desc, [sample, head // GROUPS, key, 0], there, v_ring.index(stage)
            )
            stage, parity = next_stage(stage, parity, sizes[4])


@gluon.jit
def whole_blocks(T, BLOCK_N: gl.constexpr, TAIL: gl.constexpr):
    """Blocks before the last step; one at least where that is narrower, which then may have no key."""
    whole = gl.cdiv(T - TAIL, BLOCK_N)
    if TAIL != BLOCK_N:
        whole = gl.maximum(whole, 1)
    return whole
