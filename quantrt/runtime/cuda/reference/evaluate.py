# SPDX-License-Identifier: Apache-2.0
"""What an expression means, in torch: one instruction after the other in float32, every result rounded."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import torch

from quantrt.regions.expression import SWAP, Expression, Instruction

__all__ = ["BINARY", "UNARY", "evaluate"]

Tensor = torch.Tensor

UNARY: Mapping[str, Callable[[Tensor], Tensor]] = {
    "neg": torch.neg,
    "abs": torch.abs,
    "exp": torch.exp,
    "log": torch.log,
    "sqrt": torch.sqrt,
    "rsqrt": lambda x: 1.0 / torch.sqrt(x),
    "reciprocal": torch.reciprocal,
    "erf": torch.erf,
    "tanh": torch.tanh,
    "sigmoid": torch.sigmoid,
    "softplus": lambda x: torch.clamp(x, min=0.0) + torch.log1p(torch.exp(-torch.abs(x))),
    "sin": torch.sin,
    "cos": torch.cos,
    "floor": torch.floor,
    "ceil": torch.ceil,
    "rint": torch.round,
    "sign": torch.sign,
    "not": lambda x: (x == 0).float(),
    "swap_pairs": lambda x: x.reshape(*x.shape[:-1], -1, 2).flip(-1).reshape(x.shape),
    "row_sum": lambda x: x.sum(-1, keepdim=True),
    "row_mean": lambda x: x.mean(-1, keepdim=True),
    "row_max": lambda x: x.amax(-1, keepdim=True),
    "row_min": lambda x: x.amin(-1, keepdim=True),
}

BINARY: Mapping[str, Callable[[Tensor, Tensor], Tensor]] = {
    "add": torch.add,
    "sub": torch.sub,
    "mul": torch.mul,
    "div": torch.div,
    "pow": torch.pow,
    "max": torch.maximum,
    "min": torch.minimum,
    "eq": lambda a, b: (a == b).float(),
    "lt": lambda a, b: (a < b).float(),
    "le": lambda a, b: (a <= b).float(),
    "gt": lambda a, b: (a > b).float(),
    "ge": lambda a, b: (a >= b).float(),
    "and": lambda a, b: ((a != 0) & (b != 0)).float(),
    "or": lambda a, b: ((a != 0) | (b != 0)).float(),
    "xor": lambda a, b: ((a != 0) ^ (b != 0)).float(),
    "quantize": lambda x, scale: torch.clamp(torch.round(x / scale), -128.0, 127.0),
    "quantize_fp8": lambda x, scale: torch.clamp(x / scale, -448.0, 448.0).to(torch.float8_e4m3fn).float(),
}


def evaluate(
    expression: Expression,
    accumulator: Tensor | None,
    tensors: Sequence[Tensor],
    constants: Mapping[str, Tensor],
    *,
    right: Tensor | None = None,
) -> list[Tensor]:
    """The outputs of an expression in float32, broadcast to its iteration shape (rows: last axis 1).

    Args:
        accumulator: float32; None when no operand asks for it.
        right: the second accumulator of a gate.
        tensors: of the tensor operands, in their order.
    """
    given = [*tensors, *constants.values()] if accumulator is None else [accumulator]
    device = given[0].device if given else torch.device("cpu")
    registers: list[Tensor] = []
    remaining = iter(tensors)
    lookups = expression.lookups
    for number, operand in enumerate(expression.operands):
        match operand.kind:
            case "accumulator" if accumulator is not None:
                registers.append(accumulator if number == 0 or right is None else right)
            case "tensor" if number in lookups.values():
                registers.append(next(remaining).long().unsqueeze(-1))
            case "tensor":
                registers.append(next(remaining).float())
            case "lookup":
                registers.append(_picked(constants[operand.name], registers[lookups[number]]))
            case "constant":
                registers.append(constants[operand.name].float())
            case _:
                registers.append(torch.full((), operand.value, dtype=torch.float32, device=device))
    shape = torch.broadcast_shapes(*(x.shape for x in registers))  # type: ignore[no-untyped-call]
    for instruction in expression.instructions:
        registers.append(_step(instruction, registers, shape, device))
    row_shape = (*shape[:-1], 1)
    return [
        registers[register].expand(row_shape if is_row else shape)
        for register, is_row in zip(expression.outputs, expression.row_outputs, strict=True)
    ]


def _picked(table: Tensor, index: Tensor) -> Tensor:
    """Rows of a table [V, C] by numbers [..., 1]: [..., C]; NaN for a row that is not there."""
    rows = torch.where(index < 0, index + len(table), index)
    is_there = (rows >= 0) & (rows < len(table))
    picked = table.index_select(0, torch.where(is_there, rows, 0).reshape(-1)).float()
    return torch.where(is_there, picked.reshape(*index.shape[:-1], table.shape[1]), float("nan"))


def _step(
    instruction: Instruction, registers: Sequence[Tensor], shape: torch.Size, device: torch.device
) -> Tensor:
    arguments = [registers[arg] for arg in instruction.args]
    if instruction.op == "const":
        return torch.full((), instruction.value, dtype=torch.float32, device=device)
    if instruction.op == "where":
        return torch.where(arguments[0] != 0, arguments[1], arguments[2])
    if instruction.op == "quantize_at":
        x, scale, zero = arguments
        return torch.clamp(torch.round(x / scale) + zero, -128.0, 127.0)
    if instruction.op in BINARY:
        return BINARY[instruction.op](*arguments)
    if instruction.op.startswith("row_") or instruction.op == SWAP:
        arguments = [arguments[0].expand(shape)]
    return UNARY[instruction.op](arguments[0])
