# SPDX-License-Identifier: Apache-2.0
"""Which forms and tiles of attention over codes are worth timing on a device."""

from __future__ import annotations

from collections.abc import Iterator

from quantrt.gpu import GpuFacts
from quantrt.kernels.attention.spec import AttentionProblem
from quantrt.kernels.attention_coded.spec import CodedAttention, block_d_of
from quantrt.kernels.attention_hopper import spec as hopper
from quantrt.kernels.attention_hopper.tiles import LEAST_CODED_KEYS, LEAST_TILES_RATIO
from quantrt.kernels.epilogue.spec import ELEMENT_BYTES

__all__ = ["configs", "shared_bytes"]

TILES = {
    64: ((128, 64, 8, 3), (128, 128, 8, 3), (64, 64, 4, 3)),
    128: ((128, 64, 8, 3), (128, 128, 8, 3), (64, 64, 4, 3)),
    256: ((64, 64, 8, 2), (128, 64, 8, 2), (64, 32, 8, 2)),
}
TILES_90 = {
    64: ((64, 128, 4, 3), (64, 64, 4, 3)),
    128: ((128, 128, 8, 3), (64, 64, 4, 3)),
    256: ((64, 64, 8, 3), (64, 64, 8, 2)),
}
"""Queries and keys of a step, warps and stages, by the columns of a tile, the most promising first; those of
9.0 in the order of an H200 (docs/results/cuda-attention8-h200.md). There groups of four warps multiply 64
queries; elsewhere tiles of fewer queries than keys or columns have warps side by side that share weights."""

MAX_REGISTERS = 112
MAX_REGISTERS_90 = 128
"""Of a thread, for results and scores: with more the machine code spills. Tensor cores of 9.0 read one factor
from shared memory instead of registers; that room goes to a mask, or to finding what comes after a query."""

FORMS = (("int8", "fp8"), ("int8", "floats"))
TILES_OF_FIRST = 2
"""How many of the first form that a device has; of others one, for attention in floats is timed too."""
OTHER_SHARED_BYTES = 1024


def configs(problem: AttentionProblem, device: GpuFacts) -> tuple[CodedAttention, ...]:
    """Forms in their tiles, the most promising first; none for few keys or few queries."""
    if problem.T < LEAST_CODED_KEYS:
        return ()
    forms = FORMS if device.has_fp8_tensor_cores else FORMS[1:]
    tiles = [tuple(_tiles(problem, device, *form)) for form in forms]
    return (*tiles[0][:TILES_OF_FIRST], *(how for others in tiles[1:] for how in others[:1]))


def _tiles(problem: AttentionProblem, device: GpuFacts, scores: str, values: str) -> Iterator[CodedAttention]:
    columns = block_d_of(problem)
    known = TILES_90 if device.capability == hopper.CAPABILITY else TILES
    for tile in known[max(64, columns)]:
        how = CodedAttention(scores, values, *tile)
        tiles = problem.B * problem.H * -(-problem.S // how.block_m)
        is_busy = tiles >= LEAST_TILES_RATIO * device.multiprocessors
        if is_busy and _fits(problem, how, device):
            yield how


def _fits(problem: AttentionProblem, how: CodedAttention, device: GpuFacts) -> bool:
    is_plain = not problem.has_mask_rows and not problem.is_causal
    has_more = device.capability == hopper.CAPABILITY and is_plain
    held = how.block_m * (block_d_of(problem) + how.block_n) // how.threads
    return (
        held <= (MAX_REGISTERS_90 if has_more else MAX_REGISTERS)
        and shared_bytes(problem, how) + OTHER_SHARED_BYTES <= device.shared_memory_bytes
    )


def shared_bytes(problem: AttentionProblem, how: CodedAttention) -> int:
    """Of queries, of keys and values for every stage, and of a mask with rows for those ahead."""
    floats = ELEMENT_BYTES[problem.dtype]
    scores, values = (floats if kind == "floats" else 1 for kind in (how.scores, how.values))
    rows = how.block_m * scores + how.num_stages * how.block_n * (scores + values)
    mask = ELEMENT_BYTES[problem.mask_dtype] * how.block_m * how.block_n if problem.has_mask_rows else 0
    return rows * block_d_of(problem) + (how.num_stages - 1) * mask
