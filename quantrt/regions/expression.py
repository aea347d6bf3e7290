# SPDX-License-Identifier: Apache-2.0
"""Straight-line programs over elements, in float32: epilogues, elementwise chains, norms, softmax.

    registers 0 .. len(operands) - 1      the operands
    register len(operands) + i            the result of instruction i

One expression is evaluated for every element of an iteration shape, to which all tensor operands broadcast
as ONNX does. An instruction named row_* reduces over the last axis of that shape; its result is the same
for all elements of a row. swap_pairs exchanges neighbours along that axis, 2 i and 2 i + 1. Truth is 1.0 and
0.0. Nothing here knows ONNX, torch or Triton.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["ARITY", "IDENTITY", "QUANTIZE", "QUANTIZE_AT", "SWAP", "Expression", "Instruction", "Operand"]

ARITY = {
    "const": 0,
    "neg": 1,
    "abs": 1,
    "exp": 1,
    "log": 1,
    "sqrt": 1,
    "rsqrt": 1,
    "reciprocal": 1,
    "erf": 1,
    "tanh": 1,
    "sigmoid": 1,
    "softplus": 1,
    "sin": 1,
    "cos": 1,
    "floor": 1,
    "ceil": 1,
    "rint": 1,
    "sign": 1,
    "not": 1,
    "swap_pairs": 1,
    "row_sum": 1,
    "row_mean": 1,
    "row_max": 1,
    "row_min": 1,
    "add": 2,
    "sub": 2,
    "mul": 2,
    "div": 2,
    "pow": 2,
    "max": 2,
    "min": 2,
    "eq": 2,
    "lt": 2,
    "le": 2,
    "gt": 2,
    "ge": 2,
    "and": 2,
    "or": 2,
    "xor": 2,
    "quantize": 2,
    "quantize_fp8": 2,
    "where": 3,
    "quantize_at": 3,
}
"""Arguments of every operation. `quantize(x, s)` is clip(rint(x / s), -128, 127), rint half to even, the
division correctly rounded; `quantize_at(x, s, z)` is clip(rint(x / s) + z, -128, 127) for a whole z;
`quantize_fp8(x, s)` is x / s, correctly rounded, clipped to -448 .. 448 and
rounded to the nearest number of FP8 E4M3, half to even, NaN staying NaN; `max` and `min` hand on NaN; `div`
is correctly rounded."""

QUANTIZE = {"int8": "quantize", "float8_e4m3fn": "quantize_fp8"}
"""The operation that makes codes of a type."""

SWAP = "swap_pairs"
"""The operation that exchanges neighbours along the last axis."""

QUANTIZE_AT = "quantize_at"
"""The operation that makes int8 codes with a zero point."""

ROUNDED_OPS = frozenset(
    "const neg abs reciprocal floor ceil rint sign not swap_pairs row_max row_min add sub mul div max min eq "
    "lt le gt ge and or xor quantize quantize_at quantize_fp8 where".split()
)
"""Operations whose float32 result IEEE 754 fixes to the last bit."""


@dataclass(frozen=True)
class Operand:
    """Where one operand register comes from.

    Attributes:
        kind: "accumulator" (what the region's anchor computed), "tensor" (an activation), "constant" (a
            weight of the model with more than one element), "scalar" (a float given at launch) or "lookup"
            (rows of a constant matrix, see `Expression.lookups`).
        name: of the value or the constant; empty for the others.
        use: the edge that reads it, (node name, input index); ("", 0) where there is none.
        value: of a scalar.
    """

    kind: str
    name: str = ""
    use: tuple[str, int] = ("", 0)
    value: float = 0.0


@dataclass(frozen=True)
class Instruction:
    """One operation.

    Attributes:
        op: a key of ARITY.
        args: registers.
        value: of a "const".
    """

    op: str
    args: tuple[int, ...] = ()
    value: float = 0.0


@dataclass(frozen=True)
class Expression:
    """A program.

    Attributes:
        outputs: registers that are stored, one per output of the region.
        row_outputs: for each output, whether its last axis has size 1: one element per row.
    """

    operands: tuple[Operand, ...]
    instructions: tuple[Instruction, ...]
    outputs: tuple[int, ...]
    row_outputs: tuple[bool, ...]

    @property
    def has_row(self) -> bool:
        """Whether any instruction reads other elements of a row than its own."""
        return any(x.op.startswith("row_") or x.op == SWAP for x in self.instructions)

    @property
    def lookups(self) -> dict[int, int]:
        """For every lookup, by its number: the number of the tensor operand that says which rows.

        That operand's edge is of the same node. It has integers, and no axis along the row: one of shape
        [B, S] picks rows [B, S, C] of a matrix [V, C]; where C is 1 they broadcast. Numbers below 0 count
        from the last row; a row that is not there is NaN.
        """
        tensors = {x.use[0]: i for i, x in enumerate(self.operands) if x.kind == "tensor" and x.use[0]}
        return {i: tensors[x.use[0]] for i, x in enumerate(self.operands) if x.kind == "lookup"}

    @property
    def is_rounded(self) -> bool:
        """Whether IEEE 754 fixes every float32 result to the last bit."""
        return all(instruction.op in ROUNDED_OPS for instruction in self.instructions)

    @property
    def is_identity(self) -> bool:
        """Whether its only output is operand 0, unchanged."""
        return not self.instructions and self.outputs == (0,)


IDENTITY = Expression((Operand("accumulator"),), (), (0,), (False,))
"""The epilogue that stores what the anchor computed."""
