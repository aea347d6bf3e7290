# SPDX-License-Identifier: Apache-2.0
"""A product that is split in two halves, which meet again behind it: a gated activation."""

from __future__ import annotations

from dataclasses import replace

from quantrt.ir.edit import constant_of, float_attribute, int_attribute, is_operator
from quantrt.regions.anchors.anchor import Anchor
from quantrt.regions.expression import Expression
from quantrt.regions.facts.facts import Facts
from quantrt.regions.region import Formula, Gemm

__all__ = ["find_gate"]

_HALVES = 2


def find_gate(anchor: Anchor, facts: Facts) -> Anchor | None:
    """The anchor of a product together with the Split that alone reads it; None where there is no such.

    Args:
        anchor: of the product alone.
    """
    reader = facts.only_reader(anchor.result)
    split = None if reader is None else facts.nodes[reader]
    product = facts.nodes[anchor.position]
    is_more = len(product.inputs) > 2 and product.inputs[2] is not None
    is_more |= float_attribute(product, "alpha", 1.0) != 1.0
    if reader is None or split is None or is_more or not is_operator(split, "Split"):
        return None
    shape, sizes = facts.sizes.shape(anchor.result), None
    if len(split.inputs) > 1 and split.inputs[1] is not None:
        sizes = constant_of(split.inputs[1])
        if sizes is None or sizes.tolist() != [anchor.channels // _HALVES] * _HALVES:
            return None
    if len(split.outputs) != _HALVES or anchor.channels % _HALVES or shape is None:
        return None
    if int_attribute(split, "axis", 0) not in (-1, len(shape) - 1):
        return None

    def formula(epilogue: Expression) -> Formula:
        plain = anchor.formula(epilogue)
        return replace(plain, is_gated=True) if isinstance(plain, Gemm) else plain

    left, right = split.outputs
    return replace(
        anchor,
        result=left,
        other=right,
        members=(reader,),
        channels=anchor.channels // _HALVES,
        start=lambda b: (*anchor.start(b), b.operand("accumulator", "right half")),
        formula=formula,
    )
