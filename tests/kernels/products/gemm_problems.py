# SPDX-License-Identifier: Apache-2.0
"""Products with epilogues as models have them, for tests of what is compiled and of what it should cost."""

from quantrt.kernels.gemm.spec import GemmProblem
from quantrt.regions.expression import Operand
from tests.kernels.memory_bound import expressions as spelled
from tests.kernels.memory_bound.expressions import TENSOR, Builder, constant, scalar

SUM = Operand("accumulator")
RIGHT = Operand("accumulator", "right half")


def plain_codes(M: int, N: int, K: int) -> GemmProblem:
    """Codes in, + bias, codes out."""
    b = Builder(SUM, constant("scale"), constant("bias"), scalar(0.05))
    y = b("quantize", b("add", b("mul", 0, 1), 2), 3)
    return GemmProblem(M, N, K, "int8", 16, b.build(y), (), ("int8",))


def both_forms(M: int, N: int, K: int) -> GemmProblem:
    """Codes in, + bias, the same value out as floats and as codes."""
    b = Builder(SUM, constant("scale"), constant("bias"), scalar(0.05))
    y = b("add", b("mul", 0, 1), 2)
    return GemmProblem(M, N, K, "int8", 16, b.build(y, b("quantize", y, 3)), (), ("float16", "int8"))


def heavy_codes(M: int, N: int, K: int) -> GemmProblem:
    """Codes in, + bias, GELU, + a residual of codes, floats and codes out."""
    b = Builder(SUM, constant("scale"), constant("bias"), TENSOR, scalar(0.02), scalar(0.05))
    y = spelled.gelu_erf(b, b("add", b("mul", 0, 1), 2))
    y = b("add", y, b("mul", 3, 4))
    return GemmProblem(M, N, K, "int8", 16, b.build(y, b("quantize", y, 5)), ("int8",), ("float16", "int8"))


def gelu_codes(M: int, N: int, K: int, dtype: str = "int8") -> GemmProblem:
    """Codes in, + bias, GELU, codes out."""
    b = Builder(SUM, constant("scale"), constant("bias"), scalar(0.05))
    x = b("add", b("mul", 0, 1), 2)
    cdf = b("add", b("erf", b("mul", x, b.const(0.5**0.5))), b.const(1.0))
    y = b("mul", b("mul", x, cdf), b.const(0.5))
    y = b("quantize" if dtype == "int8" else "quantize_fp8", y, 3)
    return GemmProblem(M, N, K, dtype, 16, b.build(y), (), (dtype,))


def scaled_rows(M: int, N: int, K: int) -> GemmProblem:
    """Codes in, times a scale of each row, + bias, GELU, + residual, float16 out."""
    b = Builder(SUM, TENSOR, constant("bias"), TENSOR, constant("scale"))
    y = b("add", b("mul", b("mul", 0, 4), 1), 2)
    y = b("add", spelled.gelu_erf(b, y), 3)
    types = ("float32", "float16")
    return GemmProblem(M, N, K, "int8", 16, b.build(y), types, ("float16",), per_row=(0,))


def plain_floats(M: int, N: int, K: int) -> GemmProblem:
    """float16 in, + bias, float16 out."""
    b = Builder(SUM, constant("bias"))
    return GemmProblem(M, N, K, "float16", 16, b.build(b("add", 0, 1)), (), ("float16",))


def residual_floats(M: int, N: int, K: int) -> GemmProblem:
    """Codes in, + bias, + a residual of float16, float16 out."""
    b = Builder(SUM, constant("scale"), constant("bias"), TENSOR)
    y = b("add", b("add", b("mul", 0, 1), 2), 3)
    return GemmProblem(M, N, K, "int8", 16, b.build(y), ("float16",), ("float16",))


def heavy_floats(M: int, N: int, K: int) -> GemmProblem:
    """float16 in, + bias, GELU, + residual, float16 out."""
    b = Builder(SUM, constant("bias"), TENSOR)
    y = b("add", spelled.gelu_erf(b, b("add", 0, 1)), 2)
    return GemmProblem(M, N, K, "float16", 16, b.build(y), ("float16",), ("float16",))


def gated_codes(M: int, N: int, K: int) -> GemmProblem:
    """Codes in, + biases, GEGLU, codes out."""
    b = Builder(SUM, RIGHT, *map(constant, ("scale", "right scale", "bias", "right bias")), scalar(0.05))
    left, right = b("add", b("mul", 0, 2), 4), b("add", b("mul", 1, 3), 5)
    y = b("quantize", b("mul", left, spelled.gelu_erf(b, right)), 6)
    return GemmProblem(M, N, K, "int8", 16, b.build(y), (), ("int8",), is_gated=True)


def gated_floats(M: int, N: int, K: int) -> GemmProblem:
    """float16 in, SwiGLU, float16 out."""
    b = Builder(SUM, RIGHT)
    y = b("mul", spelled.silu(b, 0), 1)
    return GemmProblem(M, N, K, "float16", 16, b.build(y), (), ("float16",), is_gated=True)
