# SPDX-License-Identifier: Apache-2.0
"""Evaluates an expression on blocks of float32, inside any kernel.

    registers = evaluate(PROGRAM, (accumulator, bias, scale))
    tl.store(y_ptr + offs, to_element(registers[OUTPUT], y_ptr.dtype.element_ty), mask)

PROGRAM is what `program_of` in spec.py made: a constant, so that every loop and branch on it is gone from the
machine code. Division, quantization and square root are correctly rounded; with floating-point fusion off,
every instruction but exp, log, erf, tanh, sigmoid, softplus and pow is rounded as in the reference.
"""

# mypy: ignore-errors
import triton
import triton.language as tl

from quantrt.kernels.expression.spec import OPS
from quantrt.kernels.jit.codes import (
    ROUNDER,
    code,
    code_fp8,
    code_fp8_near,
    digits_near,
    from_fp8,
    quantize,
    rint,
    to_fp8,
)
from quantrt.kernels.jit.functions import INF, erf, exp, gelu, power, sigmoid, softplus, swap_pairs, tanh
from quantrt.kernels.jit.zero_points import operands_of

__all__ = [
    "combine_rows",
    "evaluate",
    "evaluate_known",
    "evaluate_rows",
    "reduce_row",
    "start_rows",
    "stored",
    "to_element",
]

CONST = tl.constexpr(OPS.index("const"))
WHERE = tl.constexpr(OPS.index("where"))
NEG = tl.constexpr(OPS.index("neg"))
ABS = tl.constexpr(OPS.index("abs"))
EXP = tl.constexpr(OPS.index("exp"))
LOG = tl.constexpr(OPS.index("log"))
SQRT = tl.constexpr(OPS.index("sqrt"))
RSQRT = tl.constexpr(OPS.index("rsqrt"))
RECIPROCAL = tl.constexpr(OPS.index("reciprocal"))
ERF = tl.constexpr(OPS.index("erf"))
TANH = tl.constexpr(OPS.index("tanh"))
SIGMOID = tl.constexpr(OPS.index("sigmoid"))
SOFTPLUS = tl.constexpr(OPS.index("softplus"))
SIN = tl.constexpr(OPS.index("sin"))
COS = tl.constexpr(OPS.index("cos"))
FLOOR = tl.constexpr(OPS.index("floor"))
CEIL = tl.constexpr(OPS.index("ceil"))
RINT = tl.constexpr(OPS.index("rint"))
SIGN = tl.constexpr(OPS.index("sign"))
NOT = tl.constexpr(OPS.index("not"))
SWAP_PAIRS = tl.constexpr(OPS.index("swap_pairs"))
SQUARE = tl.constexpr(OPS.index("square"))
CUBE = tl.constexpr(OPS.index("cube"))
ROW_SUM = tl.constexpr(OPS.index("row_sum"))
ROW_MEAN = tl.constexpr(OPS.index("row_mean"))
ROW_MAX = tl.constexpr(OPS.index("row_max"))
ROW_MIN = tl.constexpr(OPS.index("row_min"))
ADD = tl.constexpr(OPS.index("add"))
SUB = tl.constexpr(OPS.index("sub"))
MUL = tl.constexpr(OPS.index("mul"))
DIV = tl.constexpr(OPS.index("div"))
POW = tl.constexpr(OPS.index("pow"))
MAX = tl.constexpr(OPS.index("max"))
MIN = tl.constexpr(OPS.index("min"))
EQ = tl.constexpr(OPS.index("eq"))
LT = tl.constexpr(OPS.index("lt"))
LE = tl.constexpr(OPS.index("le"))
GT = tl.constexpr(OPS.index("gt"))
GE = tl.constexpr(OPS.index("ge"))
AND = tl.constexpr(OPS.index("and"))
OR = tl.constexpr(OPS.index("or"))
XOR = tl.constexpr(OPS.index("xor"))
QUANTIZE = tl.constexpr(OPS.index("quantize"))
QUANTIZE_FP8 = tl.constexpr(OPS.index("quantize_fp8"))
GELU = tl.constexpr(OPS.index("gelu"))
QUANTIZE_AT = tl.constexpr(OPS.index("quantize_at"))
QUANTIZE_AT_EVEN = tl.constexpr(OPS.index("quantize_at_even"))
QUANTIZE_NEAR = tl.constexpr(OPS.index("quantize_near"))
QUANTIZE_AT_NEAR = tl.constexpr(OPS.index("quantize_at_near"))
SUB_ZERO = tl.constexpr(OPS.index("sub_zero"))
QUANTIZE_FP8_NEAR = tl.constexpr(OPS.index("quantize_fp8_near"))


@triton.jit
def evaluate(program: tl.constexpr, registers):
    """All registers of a program without row_* instructions.

    Args:
        registers: a tuple with one block, or number, for every operand; they broadcast against each other and
            are made float32 here.
    """
    return evaluate_rows(program, registers, True, 1)


@triton.jit
def evaluate_rows(program: tl.constexpr, registers, mask, columns):
    """All registers of a program whose blocks [rows, columns] hold whole rows along axis 1.

    Args:
        mask: true where a column exists, [1, block] or [rows, block]; broadcasts every reduced block.
        columns: how many exist.
    """
    known = operands_of(program, registers)
    for i in tl.static_range(len(program)):
        known = known + (apply(program, i, known, mask, columns),)
    return known


@triton.jit
def evaluate_known(program: tl.constexpr, count: tl.constexpr, registers, results):
    """Registers after the first `count` instructions, on blocks that are parts of rows.

    Args:
        results: of the row_* instructions among them, in order, [rows, 1] each.
    """
    known = operands_of(program, registers)
    for i in tl.static_range(count):
        if program[i][0] >= ROW_SUM and program[i][0] <= ROW_MIN:
            known = known + (results[program[i][3]],)
        else:
            known = known + (apply(program, i, known, True, 1),)
    return known


@triton.jit
def apply(program: tl.constexpr, i: tl.constexpr, registers, mask, columns):
    """The result of row i of a program."""
    if program[i][0] == CONST:
        y = tl.cast(program[i][4], tl.float32)
    elif program[i][0] == WHERE:
        y = select(registers[program[i][1]], registers[program[i][2]], registers[program[i][3]])
    elif program[i][0] >= ROW_SUM and program[i][0] <= ROW_MIN:
        y = reduce_row(program[i][0], registers[program[i][1]], mask, columns)
    elif program[i][0] == QUANTIZE_AT:
        y = quantize_at(registers[program[i][1]], registers[program[i][2]], registers[program[i][3]], True)
    elif program[i][0] == QUANTIZE_AT_EVEN:
        y = quantize_at(registers[program[i][1]], registers[program[i][2]], registers[program[i][3]], False)
    elif program[i][0] == QUANTIZE_NEAR:
        y = digits_near(registers[program[i][1]], registers[program[i][2]]) - ROUNDER
    elif program[i][0] == QUANTIZE_AT_NEAR:
        zero = registers[program[i][3]]
        y = digits_near(registers[program[i][1]], registers[program[i][2]], zero) - ROUNDER
    elif program[i][0] == SUB_ZERO:
        a, b = tl.broadcast(registers[program[i][1]], registers[program[i][2]])
        y = a - b
    elif program[i][0] == QUANTIZE_FP8_NEAR:
        y = from_fp8(code_fp8_near(registers[program[i][1]], registers[program[i][2]]))
    elif program[i][0] >= ADD and program[i][0] <= QUANTIZE_FP8:
        y = apply_two(program[i][0], registers[program[i][1]], registers[program[i][2]])
    else:
        y = apply_one(program[i][0], registers[program[i][1]])
    return y


@triton.jit
def apply_one(op: tl.constexpr, x):
    if op == NEG:
        y = -x
    elif op == ABS:
        y = tl.abs(x)
    elif op == EXP:
        y = exp(x)
    elif op == LOG:
        y = tl.log(x)
    elif op == SQRT:
        y = tl.sqrt_rn(x)
    elif op == RSQRT:
        y = tl.div_rn(1.0, tl.sqrt_rn(x))
    elif op == RECIPROCAL:
        y = tl.div_rn(1.0, x)
    elif op == ERF:
        y = erf(x)
    elif op == TANH:
        y = tanh(x)
    elif op == SIGMOID:
        y = sigmoid(x)
    elif op == SOFTPLUS:
        y = softplus(x)
    elif op == SIN:
        y = tl.sin(x)
    elif op == COS:
        y = tl.cos(x)
    elif op == FLOOR:
        y = tl.floor(x)
    elif op == CEIL:
        y = tl.ceil(x)
    elif op == RINT:
        y = rint(x)
    elif op == SIGN:
        y = tl.where(x > 0.0, 1.0, tl.where(x < 0.0, -1.0, 0.0))
    elif op == NOT:
        y = (x == 0.0).to(tl.float32)
    elif op == SWAP_PAIRS:
        y = swap_pairs(x)
    elif op == GELU:
        y = gelu(x)
    elif op == SQUARE:
        y = x * x
    else:
        tl.static_assert(op == CUBE, "an operation without a meaning here")
        y = x * x * x
    return y


@triton.jit
def apply_two(op: tl.constexpr, a, b):
    a, b = tl.broadcast(a, b)
    if op == ADD:
        y = a + b
    elif op == SUB:
        y = a - b
    elif op == MUL:
        y = a * b
    elif op == DIV:
        y = tl.div_rn(a, b)
    elif op == POW:
        y = power(a, b)
    elif op == MAX:
        y = tl.maximum(a, b, propagate_nan=tl.PropagateNan.ALL)
    elif op == MIN:
        y = tl.minimum(a, b, propagate_nan=tl.PropagateNan.ALL)
    elif op == EQ:
        y = (a == b).to(tl.float32)
    elif op == LT:
        y = (a < b).to(tl.float32)
    elif op == LE:
        y = (a <= b).to(tl.float32)
    elif op == GT:
        y = (a > b).to(tl.float32)
    elif op == GE:
        y = (a >= b).to(tl.float32)
    elif op == AND:
        y = ((a != 0.0) & (b != 0.0)).to(tl.float32)
    elif op == OR:
        y = ((a != 0.0) | (b != 0.0)).to(tl.float32)
    elif op == XOR:
        y = ((a != 0.0) ^ (b != 0.0)).to(tl.float32)
    elif op == QUANTIZE:
        y = quantize(a, b)
    else:
        tl.static_assert(op == QUANTIZE_FP8, "an operation without a meaning here")
        y = from_fp8(code_fp8(a, b))
    return y


@triton.jit
def quantize_at(x, scale, zero, IS_ODD: tl.constexpr):
    x, scale = tl.broadcast(x, scale)
    x, zero = tl.broadcast(x, zero)
    return quantize(x, scale, zero, IS_ODD)


@triton.jit
def select(condition, a, b):
    a, b = tl.broadcast(a, b)
    condition, a = tl.broadcast(condition, a)
    condition, b = tl.broadcast(condition, b)
    return tl.where(condition != 0.0, a, b)


@triton.jit
def reduce_row(op: tl.constexpr, x, mask, columns):
    """[rows, 1] of [rows, block]; a NaN in a row makes its result NaN."""
    if op == ROW_SUM:
        y = tl.sum(tl.where(mask, x, 0.0), axis=1, keep_dims=True)
    elif op == ROW_MEAN:
        total = tl.sum(tl.where(mask, x, 0.0), axis=1, keep_dims=True)
        y = tl.div_rn(total, tl.cast(columns, tl.float32))
    else:
        bad = tl.max(tl.where(mask & (x != x), 1, 0), axis=1, keep_dims=True)
        if op == ROW_MAX:
            y = tl.max(tl.where(mask & (x == x), x, -INF), axis=1, keep_dims=True)
        else:
            tl.static_assert(op == ROW_MIN, "an operation without a meaning here")
            y = tl.min(tl.where(mask & (x == x), x, INF), axis=1, keep_dims=True)
        y = tl.where(bad != 0, float("nan"), y)
    return y


@triton.jit
def start_rows(program: tl.constexpr, i: tl.constexpr, BLOCK_R: tl.constexpr, BLOCK_C: tl.constexpr):
    """A block for row_* instruction i to combine parts of rows in."""
    if program[i][0] == ROW_MAX:
        y = tl.full((BLOCK_R, BLOCK_C), -INF, tl.float32)
    elif program[i][0] == ROW_MIN:
        y = tl.full((BLOCK_R, BLOCK_C), INF, tl.float32)
    else:
        y = tl.zeros((BLOCK_R, BLOCK_C), tl.float32)
    return y


@triton.jit
def combine_rows(program: tl.constexpr, i: tl.constexpr, block, registers, mask):
    """That block with the next part of the rows; `reduce_row` makes the result of it."""
    x = registers[program[i][1]]
    if program[i][0] == ROW_MAX:
        x = tl.where(mask, x, -INF)
        y = tl.maximum(block, x, propagate_nan=tl.PropagateNan.ALL)
    elif program[i][0] == ROW_MIN:
        x = tl.where(mask, x, INF)
        y = tl.minimum(block, x, propagate_nan=tl.PropagateNan.ALL)
    else:
        y = block + tl.where(mask, x, 0.0)
    return y


@triton.jit
def stored(
    program: tl.constexpr,
    output: tl.constexpr,
    registers,
    element: tl.constexpr,
    is_finite: tl.constexpr = False,
):
    """Register `output` of a program as it is stored.

    Args:
        registers: all of them.
        element: type behind the pointer; see `to_element`.
        is_finite: nothing in them is NaN.
    """
    row: tl.constexpr = output - (len(registers) - len(program))
    if element == tl.int8 and row >= 0 and program[row][0] == QUANTIZE:
        x, scale = tl.broadcast(registers[program[row][1]], registers[program[row][2]])
        first: tl.constexpr = len(registers) - len(program)
        y = code(x, scale, is_positive=is_finite and _is_positive(program, first, program[row][1]))
    elif element == tl.int8 and row >= 0 and _is_quantize_at(program, row):
        x, scale = tl.broadcast(registers[program[row][1]], registers[program[row][2]])
        x, zero = tl.broadcast(x, registers[program[row][3]])
        y = code(x, scale, zero, program[row][0] == QUANTIZE_AT)
    elif element == tl.int8 and row >= 0 and program[row][0] == QUANTIZE_NEAR:
        digits = digits_near(registers[program[row][1]], registers[program[row][2]])
        y = digits.to(tl.int32, bitcast=True).to(tl.int8)
    elif element == tl.int8 and row >= 0 and program[row][0] == QUANTIZE_AT_NEAR:
        zero = registers[program[row][3]]
        digits = digits_near(registers[program[row][1]], registers[program[row][2]], zero)
        y = digits.to(tl.int32, bitcast=True).to(tl.int8)
    elif element == tl.float8e4nv and row >= 0 and program[row][0] == QUANTIZE_FP8:
        x, scale = tl.broadcast(registers[program[row][1]], registers[program[row][2]])
        y = code_fp8(x, scale)
    elif element == tl.float8e4nv and row >= 0 and program[row][0] == QUANTIZE_FP8_NEAR:
        y = code_fp8_near(registers[program[row][1]], registers[program[row][2]])
    else:
        y = to_element(registers[output], element)
    return y


@triton.constexpr_function
def _is_quantize_at(program, row):
    return program[row][0] == QUANTIZE_AT or program[row][0] == QUANTIZE_AT_EVEN


@triton.constexpr_function
def _is_positive(program, first, register):
    """Whether a register, the first ones of which are operands, is never below 0 where nothing is NaN."""
    known = [False] * int(first)
    for op, a, b, _, value in program:
        if op == CONST:
            known.append(value >= 0)
        elif op == MAX:
            known.append(known[a] or known[b])
        else:
            known.append(op == MIN and known[a] and known[b])
    return bool(known[int(register)])


@triton.jit
def to_element(x, element: tl.constexpr):
    """A float as it is stored: rounded to nearest even, truth as 0 and 1; NaN has the lowest code of int8.

    Args:
        element: uint8 and int1 store truth; int8 must come from "quantize", FP8 from "quantize_fp8".
    """
    if element == tl.int8:
        digits = (tl.where(x == x, x, -128.0) + ROUNDER).to(tl.int32, bitcast=True)
        y = digits.to(tl.int8)
    elif element == tl.float8e4nv:
        y = to_fp8(x)
    elif element == tl.uint8 or element == tl.int1:
        y = (x != 0.0).to(element)
    else:
        y = x.to(element)
    return y
