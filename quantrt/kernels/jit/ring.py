# SPDX-License-Identifier: Apache-2.0
"""Where a program's tiles lie, which stage of its ring comes next, and how sums lie in registers."""

# mypy: ignore-errors
from triton.experimental import gluon
from triton.experimental.gluon import language as gl

__all__ = ["WARPS", "main_columns", "next_stage", "place_of", "stage_before", "sums_layout"]

WARPS = gl.constexpr(4)
"""Of a consumer."""


@gluon.constexpr_function
def main_columns(columns):
    """Those of the first sums of a tile: a power of two, as all blocks have; the rest has sums of its own."""
    return 1 << columns.bit_length() - 1


@gluon.constexpr_function
def sums_layout(columns, bits):
    """How 64 rows of sums lie in the registers of four warps."""
    return gl.NVMMADistributedLayout(
        version=[3, 0], warps_per_cta=[4, 1], instr_shape=[16, columns, 256 // bits]
    )


@gluon.jit
def place_of(tile, tiles_m, tiles_n: gl.constexpr, GROUP_M: gl.constexpr):
    """Row and column of a tile: groups of GROUP_M rows of tiles, so that programs share w.

    One column of tiles has no groups, and takes no divisions. Its number is a 0 that the compiler does not
    know: else addresses of constants would be taken out of loops, into registers that there may not be.
    """
    if tiles_n == 1:
        row, column = tile, tile >> 31
    else:
        GROUP: gl.constexpr = GROUP_M * tiles_n
        first = tile // GROUP * GROUP_M
        rows = gl.minimum(tiles_m - first, GROUP_M)
        inside = tile % GROUP
        row, column = first + inside % rows, inside // rows
    return row, column


@gluon.jit
def next_stage(stage, parity, STAGES: gl.constexpr):
    """The next block's stage, and the parity of its round."""
    is_last = stage == STAGES - 1
    return gl.where(is_last, 0, stage + 1), gl.where(is_last, parity ^ 1, parity)


@gluon.jit
def stage_before(stage, STAGES: gl.constexpr):
    """The stage of the block before.

    Computed, for Triton 3.6 does not carry a variable through a loop that is set to another one there.
    """
    return gl.where(stage == 0, STAGES - 1, stage - 1)
