# SPDX-License-Identifier: Apache-2.0
"""Values that operators of one target would read as codes of two kinds: they have one kind alone."""

from __future__ import annotations

from collections.abc import Iterator

import onnx_ir as ir

from quantrt.quantize.placement.operands import rule_of
from quantrt.quantize.target import OpRule, Target

__all__ = ["why_not_beside"]


def why_not_beside(node: ir.Node, rule: OpRule, target: Target) -> str | None:
    """Which product reads what a node reads, moved or not, on another grid; None where there is none.

    It does not matter whether the product is in codes, so that what a model is mapped onto stays what it is
    when some of its layers go back to floats.
    """
    if rule.grid is None or rule.passes:
        return None
    source = node.inputs[0]
    while source is not None and (above := _moved_from(source, target)) is not None:
        source = above
    other = None if source is None else next(_products(source, target), None)
    if other is None:
        return None
    codes = f"{target.precision} codes of its input, not {rule.grid.dtype.precision} ones"
    return f"'{other.name}' reads {codes}"


def _moved_from(value: ir.Value, target: Target) -> ir.Value | None:
    """What the elements of a value were moved from; of a concatenation nothing: it is of several."""
    maker = value.producer()
    rule = None if maker is None else rule_of(maker, target)
    if maker is None or rule is None or not rule.passes or maker.op_type == "Concat":
        return None
    return maker.inputs[0]


def _products(value: ir.Value, target: Target) -> Iterator[ir.Node]:
    """Those that read a value, or what its elements are moved to."""
    for use in value.uses():
        rule = rule_of(use.node, target)
        if rule is None:
            continue
        if rule.passes:
            yield from (found for output in use.node.outputs for found in _products(output, target))
        elif rule.weight is not None and rule.activations and rule.grid is None:
            yield use.node
