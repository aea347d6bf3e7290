# SPDX-License-Identifier: Apache-2.0
"""The epilogue of a tile whose sums lie as wgmma leaves them, in Gluon: in parts, stored without a detour.

A thread's sums are of columns 8 j + 2 t and the next, for thread t of 4. Where the weight's rows were put in
the order of `kernels.gemm_hopper.spec.rows_in_order`, those are RUN columns side by side, a vector.

sizes: (N, K, BLOCK_M, BLOCK_N, BLOCK_K, STAGES, GROUP_M, RUN, sums for an output).
formula: (KINDS, PROGRAM, OUTPUTS, PITCHES), as of every kernel with an epilogue.
place: row and column of a part's first element, rows and columns of all from there, and which rows there are.
"""

# mypy: ignore-errors
from triton.experimental import gluon
from triton.experimental.gluon import language as gl

from quantrt.kernels.jit.codes import CODE_OFFSET, four_raw_floats
from quantrt.kernels.jit.epilogue import pitch_of, registers_of
from quantrt.kernels.jit.expression import evaluate, stored

__all__ = [
    "finish_part",
    "load_blocks",
    "load_constants",
    "part_layout",
    "part_of",
    "parts_of",
]


@gluon.constexpr_function
def part_layout(run, warps):
    """[16 warps, 4 run]: each of 4 threads of a row has `run` columns side by side, of two rows."""
    return gl.DistributedLinearLayout(
        reg_bases=[*([0, 1 << i] for i in range(run.bit_length() - 1)), [8, 0]],
        lane_bases=[[0, run], [0, 2 * run], [1, 0], [2, 0], [4, 0]],
        warp_bases=[[16 << i, 0] for i in range(warps.bit_length() - 1)],
        block_bases=[],
        shape=[16 * warps, 4 * run],
    )


@gluon.jit
def parts_of(sums, BLOCK_M: gl.constexpr, BLOCK_N: gl.constexpr, LAYOUT: gl.constexpr):
    """A tile's sums in parts, with columns in the order of y; those of the same columns in turn."""
    ROWS: gl.constexpr = LAYOUT.shape[0]
    RUN: gl.constexpr = LAYOUT.shape[1] // 4
    x = sums.reshape([BLOCK_M, BLOCK_N // (4 * RUN), RUN // 2, 4, 2])
    parts = (x.permute([0, 1, 3, 2, 4]).reshape([BLOCK_M, BLOCK_N]),)
    for _ in gl.static_range(BLOCK_N // (4 * RUN)):
        if parts[0].shape[1] > 4 * RUN:
            finer = ()
            for i in gl.static_range(len(parts)):
                finer = finer + halves_of_columns(parts[i])
            parts = finer
    for _ in gl.static_range(BLOCK_M // ROWS):
        if parts[0].shape[0] > ROWS:
            finer = ()
            for i in gl.static_range(len(parts)):
                finer = finer + halves_of_rows(parts[i])
            parts = finer
    ordered = ()
    for i in gl.static_range(len(parts)):
        ordered = ordered + (gl.convert_layout(parts[i], LAYOUT),)
    return ordered


@gluon.jit
def halves_of_columns(x):
    return gl.split(x.reshape([x.shape[0], 2, x.shape[1] // 2]).permute([0, 2, 1]))


@gluon.jit
def halves_of_rows(x):
    return gl.split(x.reshape([2, x.shape[0] // 2, x.shape[1]]).permute([1, 2, 0]))


@gluon.jit
def load_constants(slots, tile_n, j, sizes: gl.constexpr, formula: gl.constexpr, LAYOUT: gl.constexpr):
    """The operands of the j-th columns of a tile's parts: constants as rows, scalars, and 0 for tensors."""
    N: gl.constexpr = sizes[0]
    KINDS: gl.constexpr = formula[0]
    column = tile_n * (sizes[3] // sizes[8]) + j * LAYOUT.shape[1]
    offs_n = gl.arange(0, LAYOUT.shape[1], gl.SliceLayout(0, LAYOUT))
    operands = ()
    for i in gl.static_range(len(KINDS)):
        if KINDS[i] == "tensor" or KINDS[i] == "row":
            operands = operands + (0,)
        elif KINDS[i] == "scalar":
            operands = operands + (slots[i],)
        elif N * sizes[8] % sizes[3] == 0:
            operands = operands + (gl.load(slots[i] + column + offs_n)[None, :],)
        else:
            value = gl.load(slots[i] + column + offs_n, mask=offs_n < N - column, other=0)
            operands = operands + (value[None, :],)
    return operands


@gluon.jit
def load_blocks(slots, place, sizes: gl.constexpr, formula: gl.constexpr):
    """The operands of a part at `place`: tensors as blocks or columns, and 0 for all others."""
    KINDS: gl.constexpr = formula[0]
    operands = ()
    for i in gl.static_range(len(KINDS)):
        if KINDS[i] == "tensor":
            if has_words(slots[i].dtype.element_ty, sizes[0], pitch_of(formula[3], i, sizes[0])):
                words = load_words(slots[i], place, pitch_of(formula[3], i, sizes[0]), sizes)
                operands = operands + (words,)
            else:
                start, offsets = elements_of(place, pitch_of(formula[3], i, sizes[0]))
                mask = mask_of(place, sizes)
                operands = operands + (gl.load(slots[i] + start + offsets, mask=mask, other=0),)
        elif KINDS[i] == "row":
            value = gl.load(slots[i] + place[0] + place[2], mask=place[4], other=0)
            operands = operands + (value[:, None],)
        else:
            operands = operands + (0,)
    return operands


@gluon.jit
def part_of(tile_m, tile_n, p, M, sizes: gl.constexpr, LAYOUT: gl.constexpr):
    """The place of part p of a tile."""
    PARTS_M: gl.constexpr = sizes[2] // LAYOUT.shape[0]
    row = tile_m.to(gl.int64) * sizes[2] + p % PARTS_M * LAYOUT.shape[0]
    column = tile_n * (sizes[3] // sizes[8]) + p // PARTS_M * LAYOUT.shape[1]
    offs_m = gl.arange(0, LAYOUT.shape[0], gl.SliceLayout(1, LAYOUT))
    offs_n = gl.arange(0, LAYOUT.shape[1], gl.SliceLayout(0, LAYOUT))
    return row, column, offs_m, offs_n, offs_m < M - row


@gluon.jit
def mask_of(place, sizes: gl.constexpr):
    """Which elements of a part there are."""
    mask = place[4][:, None]
    if sizes[0] * sizes[8] % sizes[3] != 0:
        mask = mask & (place[3] < sizes[0] - place[1])[None, :]
    return mask


@gluon.constexpr_function
def has_words(element, columns, pitch):
    """Whether a part of a tensor can be loaded as int32, each of four codes side by side."""
    return element == gl.int8 and columns % 4 == 0 and pitch % 4 == 0


@gluon.jit
def load_words(pointer, place, PITCH: gl.constexpr, sizes: gl.constexpr):
    """The codes of a part at `place`, four in each int32."""
    LAYOUT: gl.constexpr = part_layout(sizes[7] // 4, place[2].shape[0] // 16)
    row, column, rows, _, there = place
    rows = gl.convert_layout(rows, gl.SliceLayout(1, LAYOUT))
    mask = gl.convert_layout(there, gl.SliceLayout(1, LAYOUT))[:, None]
    offs_n = gl.arange(0, sizes[7], gl.SliceLayout(0, LAYOUT))
    if sizes[0] * sizes[8] % sizes[3] != 0:
        mask = mask & (4 * offs_n < sizes[0] - column)[None, :]
    words = pointer.to(gl.pointer_type(gl.int32)) + (row * PITCH + column) // 4
    return gl.load(words + (rows[:, None] * (PITCH // 4) + offs_n[None, :]), mask=mask, other=0)


@gluon.jit
def codes_of(words, LAYOUT: gl.constexpr):
    """The codes of a part as float32."""
    floats = four_raw_floats(words)
    even = gl.join(floats[0], floats[2])
    odd = gl.join(floats[1], floats[3])
    codes = gl.join(even, odd).reshape([LAYOUT.shape[0], LAYOUT.shape[1]])
    return gl.convert_layout(codes, LAYOUT) - CODE_OFFSET


@gluon.constexpr_function
def are_finite(part, tensors, kinds):
    """Whether all that is finished is made of codes, and so is never NaN."""
    read = [tensor for tensor, kind in zip(tensors, kinds, strict=True) if kind in ("tensor", "row")]
    return part.dtype == gl.int32 and all(tensor.dtype in (gl.int8, gl.int32) for tensor in read)


@gluon.jit
def elements_of(place, PITCH: gl.constexpr):
    """Offset of the first element of a part whose rows are PITCH elements apart, and of all from there."""
    row, column, rows, columns, _ = place
    return row * PITCH + column, rows[:, None] * PITCH + columns[None, :]


@gluon.jit
def finish_part(
    part,
    constants,
    tensors,
    pointers,
    place,
    sizes: gl.constexpr,
    formula: gl.constexpr,
    LAYOUT: gl.constexpr,
):
    """The epilogue of the part of a tile at `place`, and its stores."""
    KINDS: gl.constexpr = formula[0]
    PROGRAM: gl.constexpr = formula[1]
    OUTPUTS: gl.constexpr = formula[2]
    operands = ()
    for i in gl.static_range(len(KINDS)):
        if KINDS[i] == "tensor":
            if tensors[i].dtype == gl.int32:
                operands = operands + (codes_of(tensors[i], LAYOUT),)
            else:
                operands = operands + (tensors[i],)
        elif KINDS[i] == "row":
            operands = operands + (tensors[i],)
        else:
            operands = operands + (constants[i],)
    if sizes[8] == 2:
        left, right = gl.split(part.reshape([LAYOUT.shape[0], LAYOUT.shape[1], 2]))
        registers = ()
        for half in gl.static_range(2):
            sums = gl.convert_layout((left, right)[half], LAYOUT)
            registers = registers + (sums.to(gl.float32),)
        registers = registers + operands
    else:
        # On compute capability 9.0 integers are converted in one instruction, at half the rate of additions.
        registers = registers_of(part.to(gl.float32), operands, sizes[1], PROGRAM)
    results = evaluate(PROGRAM, registers)
    for i in gl.static_range(len(OUTPUTS)):
        y_ptr = pointers[i]
        y = stored(PROGRAM, OUTPUTS[i], results, y_ptr.dtype.element_ty, are_finite(part, tensors, KINDS))
        start, offsets = elements_of(place, pitch_of(formula[3], len(KINDS) + i, sizes[0]))
        gl.store(y_ptr + start + offsets, y, mask=mask_of(place, sizes))
