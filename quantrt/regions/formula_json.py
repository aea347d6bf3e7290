# SPDX-License-Identifier: Apache-2.0
"""Formulas as JSON data, and back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Any

from quantrt.errors import ModelError
from quantrt.regions.expression import ARITY, Expression, Instruction, Operand
from quantrt.regions.region import (
    Attention,
    Concat,
    Conv,
    ConvTranspose,
    Formula,
    Gemm,
    GroupNorm,
    Host,
    LinearAttention,
    Nodes,
    Pool,
    PooledConv,
    Resize,
    ResizedConv,
    Rows,
    View,
)

__all__ = ["from_json", "to_json"]

_FORMULAS = (
    Gemm,
    Conv,
    ConvTranspose,
    Pool,
    PooledConv,
    Resize,
    ResizedConv,
    GroupNorm,
    Concat,
    Rows,
    Attention,
    LinearAttention,
    View,
    Host,
    Nodes,
)


def to_json(formula: Formula) -> dict[str, Any]:
    """The formula as JSON-ready data: {"type": its class, field: value, ...}."""
    return {"type": type(formula).__name__, **_fields(formula)}


def from_json(data: Mapping[str, Any]) -> Formula:
    """The formula that `to_json` described; fields that are not there have their defaults.

    Raises:
        ModelError: the data do not describe one.
    """
    for formula in _FORMULAS:
        if data.get("type") == formula.__name__:
            try:
                given = [field.name for field in fields(formula) if field.name in data]
                return formula(**{name: _value(name, data[name]) for name in given})
            except (KeyError, TypeError, ValueError) as error:
                raise ModelError(f"cannot read a {formula.__name__} formula", got=repr(error)) from error
    names = ", ".join(formula.__name__ for formula in _FORMULAS)
    raise ModelError("cannot read a formula", got=str(data.get("type")), expected=f"one of {names}")


def _fields(value: Any) -> dict[str, Any]:
    return {field.name: _plain(getattr(value, field.name)) for field in fields(value)}


def _plain(value: Any) -> Any:
    if is_dataclass(value):
        return _fields(value)
    return [_plain(item) for item in value] if isinstance(value, tuple) else value


def _value(name: str, data: Any) -> Any:
    if name in ("expression", "epilogue"):
        return _expression(data)
    if name == "convolution":
        return from_json({"type": Conv.__name__, **data})
    if name == "pool":
        return from_json({"type": Pool.__name__, **data})
    if name == "resize":
        return from_json({"type": Resize.__name__, **data})
    return _tuple(data)


def _tuple(data: Any) -> Any:
    return tuple(_tuple(item) for item in data) if isinstance(data, list) else data


def _expression(data: Mapping[str, Any]) -> Expression:
    operands = tuple(
        Operand(row["kind"], row["name"], (row["use"][0], row["use"][1]), float(row["value"]))
        for row in data["operands"]
    )
    instructions = tuple(
        Instruction(row["op"], tuple(row["args"]), float(row["value"])) for row in data["instructions"]
    )
    for number, instruction in enumerate(instructions):
        known = len(operands) + number
        if len(instruction.args) != ARITY[instruction.op] or any(
            not 0 <= arg < known for arg in instruction.args
        ):
            raise ValueError(f"instruction {number} ({instruction.op}) of {instruction.args}")
    outputs = tuple(data["outputs"])
    if any(not 0 <= register < len(operands) + len(instructions) for register in outputs):
        raise ValueError(f"outputs {outputs}")
    return Expression(operands, instructions, outputs, tuple(bool(x) for x in data["row_outputs"]))
