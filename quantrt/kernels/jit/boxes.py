# SPDX-License-Identifier: Apache-2.0
"""Where boxes of output pixels lie, BOX images, lines and columns each, in Gluon.

outputs: (images, P, Q) of y. With PHASES boxes are of every PHASES[0]-th line and PHASES[1]-th column, from
those of their phase on, and P and Q count the lines and columns of one phase.
"""

# mypy: ignore-errors
from triton.experimental import gluon
from triton.experimental.gluon import language as gl

__all__ = ["boxes_of", "corner_of", "phase_of", "pixels_of"]

FIELD = gl.constexpr(10)
GUARDS = gl.constexpr((1 << 29) + (1 << 19) + (1 << 9))
"""Bits for a place along an axis, and the highest one of each: a place below an end of at most 256 has it not
when 512 less the end is added. So a pixel's place takes one register; with three of them tiles spilled."""


@gluon.jit
def boxes_of(outputs, BOX: gl.constexpr):
    """How many boxes cover the images."""
    images, P, Q = outputs
    return gl.cdiv(images, BOX[0]) * gl.cdiv(P, BOX[1]) * gl.cdiv(Q, BOX[2])


@gluon.jit
def corner_of(tile_m, outputs, BOX: gl.constexpr):
    """First image, line and column of a box: those of one image lie side by side."""
    boxes_p = gl.cdiv(outputs[1], BOX[1])
    boxes_q = gl.cdiv(outputs[2], BOX[2])
    line = tile_m // boxes_q
    return line // boxes_p * BOX[0], line % boxes_p * BOX[1], tile_m % boxes_q * BOX[2]


@gluon.jit
def phase_of(tile_m, boxes, PHASES: gl.constexpr):
    """The phase of a tile, counted line by line, and which of its boxes it is."""
    if PHASES[0] * PHASES[1] > 1:
        return tile_m // boxes, tile_m % boxes
    return 0, tile_m


@gluon.jit
def packed(place):
    """Image, line and column within a box, or those where it ends, in one number."""
    return (place[0] << 2 * FIELD) + (place[1] << FIELD) + place[2]


@gluon.jit
def pixels_of(
    corner,
    tile_n,
    p,
    outputs,
    BOX: gl.constexpr,
    sizes: gl.constexpr,
    LAYOUT: gl.constexpr,
    phase,
    PHASES: gl.constexpr,
):
    """The place of part p of a tile, as in kernels/jit/fragments; rows are pixels.

    Args:
        phase: of the box, counted line by line.
    """
    images, P, Q = outputs
    PARTS_M: gl.constexpr = sizes[2] // LAYOUT.shape[0]
    rows = p % PARTS_M * LAYOUT.shape[0] + gl.arange(0, LAYOUT.shape[0], gl.SliceLayout(1, LAYOUT))
    offs_n = gl.arange(0, LAYOUT.shape[1], gl.SliceLayout(0, LAYOUT))
    image = rows // (BOX[1] * BOX[2])
    line = rows // BOX[2] % BOX[1]
    column = rows % BOX[2]
    ends = (
        gl.minimum(images - corner[0], BOX[0]),
        gl.minimum(P - corner[1], BOX[1]),
        gl.minimum(Q - corner[2], BOX[2]),
    )
    there = (packed((image, line, column)) + (GUARDS - packed(ends))) & GUARDS == 0
    first = tile_n * sizes[3] + p // PARTS_M * LAYOUT.shape[1]
    if PHASES[0] * PHASES[1] > 1:
        further = PHASES[0] * PHASES[1] * Q  # pixels from one line of a phase to the next
        start = phase // PHASES[1] * (PHASES[1] * Q) + phase % PHASES[1]
        row = ((corner[0] * P + corner[1]) * further + corner[2] * PHASES[1] + start).to(gl.int64)
        return row, first, (image * P + line) * further + column * PHASES[1], offs_n, there
    row = ((corner[0] * P + corner[1]) * Q + corner[2]).to(gl.int64)
    return row, first, (image * P + line) * Q + column, offs_n, there
