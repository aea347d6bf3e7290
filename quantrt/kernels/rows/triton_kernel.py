# SPDX-License-Identifier: Apache-2.0
"""outputs = expression(operands) over R rows of C columns, in the order in which the outputs lie in memory.

Rows are numbered over up to three outer dimensions [., D1, D2]; operand i has element strides x{i}_s0 to _s2
along them and x{i}_sc along the columns, 0 where it broadcasts. Outputs are dense: [R, C], or [R] where they
hold one element per row. KINDS says how each operand is read. Arguments that a kernel does not use are
constants: 0. Of rows only the first ones, as many as live_ptr says, are stored where HAS_LIVE; not with
TILES. REDUCTIONS holds the places of the row_* instructions in PROGRAM. MODE:

    TILES       no row_* instructions; one program does a tile of [BLOCK_R, BLOCK_C]
    WHOLE_ROWS  one program does BLOCK_R rows, C <= BLOCK_C; of PROGRAMS that are not 0 each does every
                PROGRAMS-th of such tiles, and reads what all rows have in common once; AHEAD: a tile is
                asked for before the one before it is computed
    HELD_ROWS   one program does BLOCK_R rows, C <= PARTS * BLOCK_C; it holds them in parts, so that rows of
                no power of two leave no threads idle, and may lie in one warp each
    LONG_ROWS   one program does BLOCK_R rows of any length; it reads them once for every reduction, with the
                part of the expression before that one, and once for the outputs
"""

# mypy: ignore-errors
import triton
import triton.language as tl

from quantrt.kernels.jit.codes import from_fp8
from quantrt.kernels.jit.expression import (
    combine_rows,
    evaluate,
    evaluate_known,
    evaluate_rows,
    reduce_row,
    start_rows,
    stored,
)
from quantrt.kernels.rows import spec

__all__ = ["map_rows"]

SCALAR = tl.constexpr(spec.SCALAR)
ELEMENT = tl.constexpr(spec.ELEMENT)
ROW = tl.constexpr(spec.ROW)
COLUMN = tl.constexpr(spec.COLUMN)
BLOCK = tl.constexpr(spec.BLOCK)
LOOKUP = tl.constexpr(spec.LOOKUP)
LOOKUP_ELEMENT = tl.constexpr(spec.LOOKUP_ELEMENT)
TILES = tl.constexpr(spec.TILES)
LONG_ROWS = tl.constexpr(spec.LONG_ROWS)
HELD_ROWS = tl.constexpr(spec.HELD_ROWS)


# Arguments as a table, one operand per line.
# fmt: off
@triton.jit
def map_rows(
    y0, y1, y2, y3,
    x0, x0_s0, x0_s1, x0_s2, x0_sc,
    x1, x1_s0, x1_s1, x1_s2, x1_sc,
    x2, x2_s0, x2_s1, x2_s2, x2_sc,
    x3, x3_s0, x3_s1, x3_s2, x3_sc,
    x4, x4_s0, x4_s1, x4_s2, x4_sc,
    x5, x5_s0, x5_s1, x5_s2, x5_sc,
    x6, x6_s0, x6_s1, x6_s2, x6_sc,
    x7, x7_s0, x7_s1, x7_s2, x7_sc,
    x8, x8_s0, x8_s1, x8_s2, x8_sc,
    x9, x9_s0, x9_s1, x9_s2, x9_sc,
    x10, x10_s0, x10_s1, x10_s2, x10_sc,
    x11, x11_s0, x11_s1, x11_s2, x11_sc,
    D1, D2, R, C, live_ptr,
    HAS_LIVE: tl.constexpr,
    PROGRAM: tl.constexpr,
    REDUCTIONS: tl.constexpr,
    KINDS: tl.constexpr,
    OUTPUTS: tl.constexpr,
    ROW_OUTPUTS: tl.constexpr,
    OUTER: tl.constexpr,
    MODE: tl.constexpr,
    BLOCK_R: tl.constexpr,
    BLOCK_C: tl.constexpr,
    PROGRAMS: tl.constexpr,
    AHEAD: tl.constexpr,
    PARTS: tl.constexpr,
):
    slots = (x0, x1, x2, x3, x4, x5, x6, x7, x8, x9, x10, x11)
    strides = (
        (x0_s0, x0_s1, x0_s2, x0_sc),
        (x1_s0, x1_s1, x1_s2, x1_sc),
        (x2_s0, x2_s1, x2_s2, x2_sc),
        (x3_s0, x3_s1, x3_s2, x3_sc),
        (x4_s0, x4_s1, x4_s2, x4_sc),
        (x5_s0, x5_s1, x5_s2, x5_sc),
        (x6_s0, x6_s1, x6_s2, x6_sc),
        (x7_s0, x7_s1, x7_s2, x7_sc),
        (x8_s0, x8_s1, x8_s2, x8_sc),
        (x9_s0, x9_s1, x9_s2, x9_sc),
        (x10_s0, x10_s1, x10_s2, x10_sc),
        (x11_s0, x11_s1, x11_s2, x11_sc),
    )
    # fmt: on
    pointers = (y0, y1, y2, y3)
    tile = tl.program_id(0)
    if HAS_LIVE:
        R = tl.minimum(R, tl.load(live_ptr))
        if tile * BLOCK_R >= R:
            return
    columns = tl.arange(0, BLOCK_C)[None, :]
    if MODE == TILES:
        tiles = tl.cdiv(C, BLOCK_C)
        columns += (tile % tiles) * BLOCK_C
        tile = tile // tiles
    rows = tile * BLOCK_R + tl.arange(0, BLOCK_R)[:, None]
    index = outer_index(rows, D1, D2, OUTER)
    if MODE == LONG_ROWS:
        known = ()
        # `while`, for the interpreter makes no range of an argument.
        for i in tl.static_range(len(REDUCTIONS)):
            block = start_rows(PROGRAM, REDUCTIONS[i], BLOCK_R, BLOCK_C)
            first = tile * 0
            while first < C:
                part = columns + first
                registers = load_all(KINDS, slots, strides, index, part, rows < R, part < C, OUTER, ())
                results = evaluate_known(PROGRAM, REDUCTIONS[i], registers, known)
                block = combine_rows(PROGRAM, REDUCTIONS[i], block, results, part < C)
                first += BLOCK_C
            known = known + (reduce_row(PROGRAM[REDUCTIONS[i]][0], block, rows == rows, C),)
        first = tile * 0
        while first < tl.maximum(C, 1):
            part = columns + first
            registers = load_all(KINDS, slots, strides, index, part, rows < R, part < C, OUTER, ())
            results = evaluate_known(PROGRAM, len(PROGRAM), registers, known)
            store_all(PROGRAM, OUTPUTS, ROW_OUTPUTS, pointers, results, rows, part, R, C, BLOCK_R, BLOCK_C)
            first += BLOCK_C
    elif MODE == HELD_ROWS:
        held = ()
        for p in tl.static_range(PARTS):
            part = columns + p * BLOCK_C
            held = held + (load_all(KINDS, slots, strides, index, part, rows < R, part < C, OUTER, ()),)
        known = ()
        for i in tl.static_range(len(REDUCTIONS)):
            block = start_rows(PROGRAM, REDUCTIONS[i], BLOCK_R, BLOCK_C)
            for p in tl.static_range(PARTS):
                results = evaluate_known(PROGRAM, REDUCTIONS[i], held[p], known)
                block = combine_rows(PROGRAM, REDUCTIONS[i], block, results, columns + p * BLOCK_C < C)
            known = known + (reduce_row(PROGRAM[REDUCTIONS[i]][0], block, rows == rows, C),)
        for p in tl.static_range(PARTS):
            part = columns + p * BLOCK_C
            results = evaluate_known(PROGRAM, len(PROGRAM), held[p], known)
            store_all(PROGRAM, OUTPUTS, ROW_OUTPUTS, pointers, results, rows, part, R, C, BLOCK_R, BLOCK_C)
    elif PROGRAMS > 0:
        common = load_common(KINDS, slots, strides, index, columns, columns < C, OUTER)
        mask_c = columns < C
        registers = ()
        if AHEAD:
            registers = load_all(KINDS, slots, strides, index, columns, rows < R, mask_c, OUTER, common)
        while tile * BLOCK_R < R:
            rows = tile * BLOCK_R + tl.arange(0, BLOCK_R)[:, None]
            asked = rows + AHEAD * PROGRAMS * BLOCK_R
            index = outer_index(asked, D1, D2, OUTER)
            later = load_all(KINDS, slots, strides, index, columns, asked < R, mask_c, OUTER, common)
            current = registers if AHEAD else later
            results = evaluate_rows(PROGRAM, current, columns < C, C)
            store_all(
                PROGRAM, OUTPUTS, ROW_OUTPUTS, pointers, results, rows, columns, R, C, BLOCK_R, BLOCK_C
            )
            if AHEAD:
                registers = later + ()  # computed, for Triton 3.6 carries no variable that is another one
            tile += PROGRAMS
    else:
        registers = load_all(KINDS, slots, strides, index, columns, rows < R, columns < C, OUTER, ())
        if MODE == TILES:
            results = evaluate(PROGRAM, registers)
        else:
            results = evaluate_rows(PROGRAM, registers, columns < C, C)
        store_all(PROGRAM, OUTPUTS, ROW_OUTPUTS, pointers, results, rows, columns, R, C, BLOCK_R, BLOCK_C)


@triton.jit
def outer_index(rows, D1, D2, OUTER: tl.constexpr):
    """The three outer indices of each row, 64 bits wide: strides times indices may exceed 32."""
    first = rows
    second = rows * 0
    third = rows * 0
    if OUTER == 3:
        third = first % D2
        first = first // D2
    if OUTER >= 2:
        second = first % D1
        first = first // D1
    return first.to(tl.int64), second.to(tl.int64), third.to(tl.int64)


@triton.jit
def load_common(
    kinds: tl.constexpr, slots, strides, index, columns, mask_c, OUTER: tl.constexpr
):
    """Operands that are the same for all rows; 0 for others."""
    common = ()
    for i in tl.static_range(len(kinds)):
        if kinds[i] == COLUMN:
            x = load_one(kinds[i], slots[i], strides[i], index, columns, mask_c, mask_c, OUTER)
        else:
            x = 0
        common = common + (x,)
    return common


@triton.jit
def load_all(
    kinds: tl.constexpr, slots, strides, index, columns, mask_r, mask_c, OUTER: tl.constexpr, common
):
    """All operands of a tile.

    Args:
        common: what `load_common` gave; empty where nothing was loaded before.
    """
    registers = ()
    for i in tl.static_range(len(kinds)):
        if kinds[i] == COLUMN and len(common) > 0:
            x = common[i]
        elif kinds[i] >= LOOKUP_ELEMENT:
            number = registers[kinds[i] - LOOKUP_ELEMENT]
            x = look_up(number, slots[i], strides[i], 0, tl.full((1, 1), 1, tl.int1))
        elif kinds[i] >= LOOKUP:
            number = registers[kinds[i] - LOOKUP]
            if kinds[kinds[i] - LOOKUP] == ELEMENT:
                x = look_up(number, slots[i], strides[i], columns, mask_c)
            else:
                x = look_up(number, slots[i], strides[i], columns, mask_r & mask_c)
        else:
            x = load_one(kinds[i], slots[i], strides[i], index, columns, mask_r, mask_c, OUTER)
        registers = registers + (x,)
    return registers


@triton.jit
def look_up(number, table, sizes, columns, mask):
    """Columns of the numbered row, as float32; below 0 from the last; NaN for a row that is not there.

    Args:
        number: float32, whole; [BLOCK_R, 1], or less where it broadcasts.
        sizes: stride of the rows, how many there are.
    """
    number += tl.zeros((1, 1), tl.float32)
    row = tl.where(number < 0, number + sizes[1], number)
    is_there = (row >= 0) & (row < sizes[1])
    place = tl.where(is_there, row, 0.0).to(tl.int64) * sizes[0] + columns
    x = tl.load(table + place, mask=mask & is_there, other=0).to(tl.float32)
    return tl.where(is_there, x, float("nan"))


@triton.jit
def load_one(
    kind: tl.constexpr, slot, stride, index, columns, mask_r, mask_c, OUTER: tl.constexpr
):
    """One operand as float32: [BLOCK_R, BLOCK_C], or less where it broadcasts."""
    if kind == SCALAR:
        x = slot
    elif kind == ELEMENT:
        x = tl.load(slot)
    elif kind == COLUMN:
        x = tl.load(slot + columns, mask=mask_c, other=0.0)
    else:
        offset = index[0] * 0
        if OUTER >= 1:
            offset = index[0] * stride[0]
        if OUTER >= 2:
            offset += index[1] * stride[1]
        if OUTER == 3:
            offset += index[2] * stride[2]
        if kind == ROW:
            x = tl.load(slot + offset, mask=mask_r, other=0.0)
        elif kind == BLOCK:
            x = tl.load(slot + offset + columns, mask=mask_r & mask_c, other=0.0)
        else:
            far = columns.to(tl.int64) * stride[3]
            x = tl.load(slot + offset + far, mask=mask_r & mask_c, other=0.0)
    if tl.constexpr(isinstance(x, tl.tensor)) and x.dtype == tl.float8e4nv:
        y = from_fp8(x)
    else:
        y = tl.cast(x, tl.float32)
    return y


@triton.jit
def store_all(
    program: tl.constexpr, outputs: tl.constexpr, row_outputs: tl.constexpr, pointers, results,
    rows, columns, R, C, BLOCK_R: tl.constexpr, BLOCK_C: tl.constexpr,
):
    for i in tl.static_range(len(outputs)):
        y = stored(program, outputs[i], results, pointers[i].dtype.element_ty)
        y = tl.broadcast_to(y, (BLOCK_R, BLOCK_C))
        far = rows.to(tl.int64)
        if row_outputs[i]:
            # Every column holds the row's value; the first stores it, of a row without columns too.
            tl.store(pointers[i] + far + columns * 0, y, mask=(rows < R) & (columns == 0))
        else:
            tl.store(pointers[i] + far * C + columns, y, mask=(rows < R) & (columns < C))
