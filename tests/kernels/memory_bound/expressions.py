# SPDX-License-Identifier: Apache-2.0
"""Expressions spelled as models spell them, for tests of every kernel that evaluates them."""

from quantrt.regions.expression import Expression, Instruction, Operand

TENSOR = Operand("tensor", "x")


def constant(name: str) -> Operand:
    return Operand("constant", name)


def scalar(value: float) -> Operand:
    return Operand("scalar", value=value)


class Builder:
    """Writes an expression instruction by instruction; each call returns a register."""

    def __init__(self, *operands: Operand) -> None:
        self.operands = operands
        self.instructions: list[Instruction] = []

    def __call__(self, op: str, *args: int, value: float = 0.0) -> int:
        self.instructions.append(Instruction(op, args, value))
        return len(self.operands) + len(self.instructions) - 1

    def const(self, value: float) -> int:
        return self("const", value=value)

    def build(self, *outputs: int, rows: tuple[bool, ...] | None = None) -> Expression:
        return Expression(self.operands, tuple(self.instructions), outputs, rows or (False,) * len(outputs))


def layer_norm(b: Builder, x: int, gamma: int, beta: int, epsilon: int) -> int:
    """(x - mean) / sqrt(mean((x - mean)^2) + epsilon) * gamma + beta, as torch.onnx writes it."""
    centred = b("sub", x, b("row_mean", x))
    variance = b("row_mean", b("pow", centred, b.const(2.0)))
    scaled = b("div", centred, b("sqrt", b("add", variance, epsilon)))
    return b("add", b("mul", scaled, gamma), beta)


def rms_norm(b: Builder, x: int, gamma: int, epsilon: int) -> int:
    mean = b("row_mean", b("mul", x, x))
    return b("mul", b("mul", x, b("rsqrt", b("add", mean, epsilon))), gamma)


def softmax(b: Builder, x: int) -> int:
    powers = b("exp", b("sub", x, b("row_max", x)))
    return b("div", powers, b("row_sum", powers))


def gelu_erf(b: Builder, x: int) -> int:
    cdf = b("add", b("erf", b("div", x, b.const(1.4142135381698608))), b.const(1.0))
    return b("mul", b("mul", x, cdf), b.const(0.5))


def gelu_tanh(b: Builder, x: int) -> int:
    cubed = b("mul", b("pow", x, b.const(3.0)), b.const(0.044714998453855515))
    inner = b("mul", b("add", x, cubed), b.const(0.7978845834732056))
    return b("mul", b("mul", x, b.const(0.5)), b("add", b("tanh", inner), b.const(1.0)))


def silu(b: Builder, x: int) -> int:
    return b("mul", x, b("sigmoid", x))


def hard_swish(b: Builder, x: int) -> int:
    clipped = b("min", b("max", b("add", x, b.const(3.0)), b.const(0.0)), b.const(6.0))
    return b("div", b("mul", x, clipped), b.const(6.0))
