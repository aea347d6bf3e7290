# SPDX-License-Identifier: Apache-2.0
"""The attributes of a node as keyword arguments of the function that computes it."""

from __future__ import annotations

import inspect
from collections.abc import Callable

import onnx_ir as ir
import torch

from quantrt.errors import ModelError, close_match
from quantrt.operators.element_types import from_numpy, torch_type
from quantrt.operators.operator import Operator, Value

__all__ = ["bind_attributes", "label", "load_tensor"]

_GRAPHS = (ir.AttributeType.GRAPH, ir.AttributeType.GRAPHS)
_WITHOUT_EFFECT = ("consumed_inputs",)
"""Attributes of opset 1 that named memory to reuse."""


def bind_attributes(node: ir.Node, operator: Operator, device: torch.device) -> dict[str, Value]:
    """Keyword arguments from the node's attributes, tensors put on the device; subgraphs are left out.

    Raises:
        ModelError: an attribute the function does not know, one it needs and does not get, or one with text.
    """
    known, needed = _keywords(operator.function)
    found: dict[str, Value] = {}
    graphs: set[str] = set()
    for name, attribute in node.attributes.items():
        if name in _WITHOUT_EFFECT:
            continue
        if name not in known:
            near = close_match(name, known)
            raise ModelError(
                f"{label(node)} has an attribute that its operator does not take: '{name}'",
                expected=", ".join(known) or "none",
                hint=f"'{near}'" if near else None,
            )
        if attribute.type in _GRAPHS:
            graphs.add(name)
        else:
            found[name] = _value(node, attribute, device)
    missing = [name for name in needed if name not in found and name not in graphs]
    if missing:
        raise ModelError(f"{label(node)} lacks an attribute", expected=", ".join(missing))
    return found


def label(node: ir.Node) -> str:
    """How a node is named in messages."""
    return f"node '{node.name or '?'}' ({node.op_type})"


def load_tensor(tensor: ir.TensorProtocol, device: torch.device) -> torch.Tensor:
    """A constant of the model on the device.

    Raises:
        ModelError: text, or a type that torch does not have; names the constant.
    """
    try:
        torch_type(tensor.dtype)
        return from_numpy(tensor.numpy(), device)
    except ModelError as error:
        raise ModelError(
            f"constant '{tensor.name or '?'}' cannot be a torch tensor",
            got=error.got,
            expected=error.expected,
        ) from error


def _value(node: ir.Node, attribute: ir.Attr, device: torch.device) -> Value:
    kinds = ir.AttributeType
    if attribute.type == kinds.TENSOR:
        return load_tensor(attribute.as_tensor(), device)
    if attribute.type in (kinds.INTS, kinds.FLOATS, kinds.STRINGS):
        return tuple(attribute.value)
    if attribute.type in (kinds.INT, kinds.FLOAT, kinds.STRING, kinds.TYPE_PROTO):
        return attribute.value
    raise ModelError(
        f"{label(node)} has an attribute of a kind that cannot be used: '{attribute.name}'",
        got=attribute.type.name.lower(),
    )


def _keywords(function: Callable[..., Value]) -> tuple[list[str], list[str]]:
    """Names of all keyword arguments that attributes may fill, and of those without a default.

    A function of torch itself shows no signature and takes no attributes.
    """
    try:
        parameters = inspect.signature(function).parameters.values()
    except ValueError:
        return [], []
    reserved = ("context", "reduction") if hasattr(function, "func") else ("context",)
    keywords = [p for p in parameters if p.kind is p.KEYWORD_ONLY and p.name not in reserved]
    return [p.name for p in keywords], [p.name for p in keywords if p.default is p.empty]
