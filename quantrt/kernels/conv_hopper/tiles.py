# SPDX-License-Identifier: Apache-2.0
"""Which tiles and boxes of pixels are worth timing for a convolution on compute capability 9.0.

The estimate only ranks tiles against each other and against doing without, as in kernels/gemm_hopper.
"""

from __future__ import annotations

from dataclasses import replace
from math import prod

from quantrt.gpu import LAUNCH_US, GpuFacts
from quantrt.kernels.conv2d.spec import ConvProblem
from quantrt.kernels.conv2d.tiles import cost
from quantrt.kernels.conv_hopper.spec import MAX_BOX, BoxTile, channel_block, rows_of, taps_of
from quantrt.kernels.epilogue.spec import ELEMENT_BYTES
from quantrt.kernels.expression.spec import flops_of
from quantrt.kernels.gemm_hopper.spec import MANY_SUMS, HopperTile
from quantrt.kernels.gemm_hopper.tiles import FILL_US, OTHER_SHARED_BYTES, REACHED_MATH, TURN_US

__all__ = ["box_of", "column_box_of", "configs", "estimate_us"]

MAX_CONFIGS_OF_A_KIND = 2
MAX_LOOPED = 2
LOOPED_COLUMNS = 128
"""Of tiles whose end is tried in a loop too: of narrower ones the loop is too short to save machine code."""

BLOCKS = ((128, 128), (64, 128), (128, 64), (64, 64))
SHARED_BLOCK = (64, 64)
"""Of two programs that share a multiprocessor: four consumers finish tiles there, where one has two. On an
H200 sums over 64 channels were up to an eighth faster so, longer ones slower by up to a half."""
COLUMNS = (8, 16, 32, 64)
MIN_STAGES = 3
MAX_STAGES = 8
MAX_OFFSET = 2**31 - 1

LEAST_TILES_RATIO = 0.5
"""Tiles for a multiprocessor: with fewer, sums that are cut into parts are faster."""

STEP_US = 0.05
X_ROW_US = 0.0019
W_ROW_US = 0.00095
"""Least time of a step, and what the copy engine takes for rows of boxes and of the weight, of 64 bytes as of
128: from convolutions of 64 to 512 channels on an H200."""

FINISH_RATIO = 3
"""What the end of a tile takes over what its instructions would if they were issued without a gap: a quarter
of a multiprocessor has one warp that finishes."""


def configs(problem: ConvProblem, device: GpuFacts) -> tuple[BoxTile, ...]:
    """At most 2 with steps of single taps and 2 with steps of columns; the most promising first.

    Then the best of two to a multiprocessor, where weights are held, and the best of the wide ones with their
    ends in a loop. None for a convolution that is too small.
    """
    found = [tile for block in BLOCKS for tile in _tiles_of(problem, HopperTile(*block, 0), device)]
    found.sort(key=lambda tile: estimate_us(problem, tile, device))
    of_a_kind = {kind: [tile for tile in found if tile.is_column == kind] for kind in (False, True)}
    chosen = [tile for tiles in of_a_kind.values() for tile in tiles[:MAX_CONFIGS_OF_A_KIND]]
    best = [tile for tile in found if tile in chosen]
    looped = [replace(tile, is_looped=True) for tile in best if _has_loop(problem, tile)]
    shared = _tiles_of(problem, HopperTile(*SHARED_BLOCK, 0, neighbours=2), device) if best else []
    held = [tile for tile in shared if tile.holds_w]
    held.sort(key=lambda tile: estimate_us(problem, tile, device))
    return (*best, *held[:1], *looped[:MAX_LOOPED])


def _tiles_of(problem: ConvProblem, product: HopperTile, device: GpuFacts) -> list[BoxTile]:
    """With boxes for steps of taps and for steps of columns, where these fill the device."""
    boxes = [(box_of(problem, product.block_m), False)]
    column_box = column_box_of(problem, product.block_m)
    boxes += [] if column_box is None else [(column_box, True)]
    tiles = [_staged(problem, BoxTile(product, box, is_column), device) for box, is_column in boxes]
    least = LEAST_TILES_RATIO * device.multiprocessors * product.neighbours
    return [
        tile
        for tile in tiles
        if _tiles(problem, tile) >= least and product.block_n < 2 * problem.N and tile.product.stages > 1
    ]


def _has_loop(problem: ConvProblem, tile: BoxTile) -> bool:
    """Whether its end is tried in a loop: with many sums and tensors that would take too many registers."""
    is_full = tile.product.sums >= MANY_SUMS and len(problem.tensors) > 0
    return tile.product.block_n >= LOOPED_COLUMNS and not is_full


def box_of(problem: ConvProblem, block_m: int) -> tuple[int, int, int]:
    """Images, lines and columns of at most block_m pixels that cover the output with the fewest boxes.

    Among those the one of the fewest images, whose pixels share most of what they read. Whole images where
    any fit: rows of fewer boxes that are cut otherwise took longer on an H200.
    """
    images, P, Q = problem.output
    most_images = min(images, MAX_OFFSET // max(P * Q * problem.N, 1))
    if 0 < P * Q <= block_m:
        return max(1, min(most_images, block_m // (P * Q))), P, Q
    most_p, most_q = MAX_BOX // problem.strides[0], MAX_BOX // problem.strides[1]
    boxes = []
    for columns in range(1, min(Q, block_m, most_q) + 1):
        for lines in range(1, min(P, block_m // columns, most_p) + 1):
            images = max(1, min(most_images, block_m // (columns * lines)))
            boxes.append((images, lines, columns))
    return min(boxes, key=lambda box: (_boxes(problem, box), box[0], -box[2]), default=(1, 1, 1))


def column_box_of(problem: ConvProblem, block_m: int) -> tuple[int, int, int] | None:
    """A box of one image, a multiple of 8 wide, for steps of columns of the window; None where none is."""
    if problem.R == 1 or problem.strides[0] > 1:
        return None
    boxes = []
    for columns in COLUMNS:
        box = (1, block_m // columns, columns)
        tile = BoxTile(HopperTile(block_m, block_m, 2), box, is_column=True)
        if rows_of(problem, tile) <= MAX_BOX and columns * problem.strides[1] <= MAX_BOX:
            boxes.append(box)
    return min(boxes, key=lambda box: (_boxes(problem, box), box[2]), default=None)


def estimate_us(problem: ConvProblem, tile: BoxTile, device: GpuFacts) -> float:
    """Predicted time of the kernel with this tile."""
    cut = tile.product
    elements = cut.block_m * cut.block_n
    rounds = -(-_tiles(problem, tile) // device.multiprocessors)
    peak = device.int8_tops if problem.dtype == "int8" else device.fp16_tflops
    rate = 1e6 * peak * REACHED_MATH[problem.dtype]
    block_k = channel_block(problem)
    taps = taps_of(problem, tile)
    steps = _steps(problem, tile)
    x_rows = prod(tile.box) + rows_of(problem, tile) - cut.block_m
    copy_us = x_rows * X_ROW_US + taps * cut.block_n * (not tile.holds_w) * W_ROW_US
    math_us = device.multiprocessors * 2 * elements * taps * block_k / rate
    product_us = steps * max(STEP_US, copy_us, math_us)
    stored = sum(ELEMENT_BYTES[dtype] for dtype in (*problem.outputs, *problem.tensors))
    instructions = flops_of(problem.epilogue, problem.outputs) + 2 * stored + 2
    issued_us = device.multiprocessors * elements * instructions / (0.5e6 * device.fp32_tflops)
    finish_us = FINISH_RATIO * issued_us
    busy_us = rounds * max(product_us + TURN_US, (product_us + finish_us) / 2) + finish_us
    return LAUNCH_US + FILL_US + max(busy_us, cost(problem, device).time_us)


def _staged(problem: ConvProblem, tile: BoxTile, device: GpuFacts) -> BoxTile:
    """With as many stages as fit; the weight is held where one tile has all columns and stages are left."""
    row_bytes = channel_block(problem) * ELEMENT_BYTES[problem.dtype]
    neighbours = tile.product.neighbours
    space = (device.shared_memory_bytes // neighbours - neighbours * OTHER_SHARED_BYTES) // row_bytes
    x_rows, w_rows = rows_of(problem, tile), taps_of(problem, tile) * tile.product.block_n
    held_stages = (space - _steps(problem, tile) * w_rows) // x_rows
    holds_w = problem.N <= tile.product.block_n and held_stages >= MIN_STAGES
    stages = held_stages if holds_w else space // (x_rows + w_rows)
    product = replace(tile.product, stages=min(MAX_STAGES, stages))
    return replace(tile, product=product, holds_w=holds_w)


def _steps(problem: ConvProblem, tile: BoxTile) -> int:
    """Of one tile."""
    return problem.R // taps_of(problem, tile) * problem.S * -(-problem.C // channel_block(problem))


def _boxes(problem: ConvProblem, box: tuple[int, int, int]) -> int:
    return prod(-(-size // length) for size, length in zip(problem.output, box, strict=True))


def _tiles(problem: ConvProblem, tile: BoxTile) -> int:
    return _boxes(problem, tile.box) * -(-problem.N // tile.product.block_n)
