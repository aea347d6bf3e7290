# SPDX-License-Identifier: Apache-2.0
"""GroupNormalization, InstanceNormalization, and the former written as the latter.

torch.onnx below opset 21 writes Reshape [N, groups, -1] -> InstanceNormalization -> Reshape back, then Mul
and Add with a weight and a bias for every channel, which are part of the epilogue.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from quantrt.ir.edit import constant_of, float_attribute, int_attribute, is_operator
from quantrt.regions.anchors.anchor import FLOATS, Anchor, is_float, is_per_image
from quantrt.regions.expression import Expression
from quantrt.regions.expressions.builder import ExpressionBuilder, Register
from quantrt.regions.expressions.express import read
from quantrt.regions.facts.facts import Facts, is_constant
from quantrt.regions.region import GroupNorm

__all__ = ["find_group_norm"]

_NORMS = ("InstanceNormalization", "GroupNormalization")
_EPSILON = 1e-5  # of both operators
_MIN_RANK = 3


@dataclass(frozen=True)
class _Norm:
    """One norm.

    Attributes:
        edge: that reads x: a node's position and the input's place.
        members: positions of the nodes that are part of it beside its own.
    """

    edge: tuple[int, int]
    result: ir.Value
    groups: int
    channels: int
    members: tuple[int, ...] = ()


def find_group_norm(position: int, facts: Facts) -> Anchor | str | None:
    """The anchor of a node; why there is none; None when it is no such norm."""
    node = facts.nodes[position]
    if not is_operator(node, *_NORMS) or len(node.inputs) < 3:
        return None
    if not is_float(node.inputs[0], facts):
        return "its input is not a float activation"
    affine = node.inputs[1:3]
    if not all(is_constant(value) and value is not None and value.dtype in FLOATS for value in affine):
        return "its scale or its bias is not a constant of floats"
    norm = _reshaped(position, facts) or _plain(position, facts)
    if isinstance(norm, str):
        return norm
    shift = _shift(norm, facts)
    reader, place = norm.edge if shift is None else (shift.position, 1 - shift.place)
    x = facts.nodes[reader].inputs[place]
    shape = facts.sizes.shape(norm.result)
    if x is None or shape is None:
        return "the rank of its input is not known"
    name = facts.nodes[reader].name or ""

    def formula(epilogue: Expression) -> GroupNorm:
        edge = None if shift is None else (name, shift.place)
        epsilon = float_attribute(node, "epsilon", _EPSILON)
        return GroupNorm((name, place), edge, norm.groups, norm.channels, epsilon, epilogue)

    return Anchor(
        position,
        x,
        norm.result,
        norm.channels,
        1 - len(shape),
        lambda b: (_start(b, node),),
        formula,
        members=(*norm.members, *(() if shift is None else (shift.position,))),
        more=() if shift is None else (shift.value,),
        takes_images=True,
    )


def _plain(position: int, facts: Facts) -> _Norm | str:
    """A norm of the axes that its input has."""
    node = facts.nodes[position]
    shape = facts.sizes.shape(node.inputs[0])
    if shape is None or len(shape) < _MIN_RANK:
        return "the rank of its input is not known" if shape is None else "its input has no spatial axes"
    channels = shape[1]
    if not isinstance(channels, int):
        return "the number of its channels is not known"
    groups = int_attribute(node, "num_groups", channels) if is_operator(node, _NORMS[1]) else channels
    if groups < 1 or channels % groups:
        return f"{channels} channels in {groups} groups"
    is_by_group = is_operator(node, _NORMS[0]) or facts.opset < _PER_CHANNEL_OPSET
    expected = groups if is_by_group else channels
    if any(_count(value) != expected for value in node.inputs[1:3]):
        return f"its scale or its bias does not have {expected} elements"
    return _Norm((position, 0), node.outputs[0], groups, channels)


_PER_CHANNEL_OPSET = 21
"""From it on GroupNormalization has a scale for every channel; before, for every group."""


def _reshaped(position: int, facts: Facts) -> _Norm | None:
    """A norm over groups written as one of images with a channel for every group; None where it is none."""
    node = facts.nodes[position]
    maker = facts.maker_of(node.inputs[0])
    reader = facts.only_reader(node.outputs[0])
    if maker is None or reader is None or not is_operator(node, _NORMS[0]):
        return None
    before, behind = facts.nodes[maker], facts.nodes[reader]
    if not (is_operator(before, "Reshape") and is_operator(behind, "Reshape")):
        return None
    if behind.inputs[0] is not node.outputs[0] or facts.only_reader(before.outputs[0]) != position:
        return None
    inner, outer = facts.sizes.shape(node.inputs[0]), facts.sizes.shape(before.inputs[0])
    if inner is None or outer is None or len(inner) != _MIN_RANK or len(outer) < _MIN_RANK:
        return None
    groups, channels = inner[1], outer[1]
    if not (isinstance(groups, int) and isinstance(channels, int)) or not groups or channels % groups:
        return None
    is_same = inner[0] == outer[0] and facts.sizes.same(before.inputs[0], behind.outputs[0])
    if not is_same or any(_count(value) != groups for value in node.inputs[1:3]):
        return None
    return _Norm((maker, 0), behind.outputs[0], groups, channels, (maker, reader))


@dataclass(frozen=True)
class _Shift:
    """A sum in front of a norm: the node, and which of its inputs has one element per channel of an image."""

    position: int
    place: int
    value: ir.Value


def _shift(norm: _Norm, facts: Facts) -> _Shift | None:
    """The sum that makes x for this norm alone, of an image and of something for each of its channels."""
    value = facts.nodes[norm.edge[0]].inputs[norm.edge[1]]
    position = facts.maker_of(value)
    if position is None or value is None or facts.only_reader(value) is None:
        return None
    node = facts.nodes[position]
    if not is_operator(node, "Add") or not all(is_float(x, facts) for x in node.inputs):
        return None
    shape = facts.sizes.shape(value)
    for place, one in enumerate(node.inputs):
        other = node.inputs[1 - place]
        if one is None or facts.sizes.same(one, value) or not is_per_image(facts.sizes.shape(one), shape):
            continue
        if facts.sizes.same(other, value):
            return _Shift(position, place, one)
    return None


def _start(builder: ExpressionBuilder, node: ir.Node) -> Register:
    """What was normalized, times the scale, plus the bias; numbers that change nothing are left out."""
    result = builder.operand("accumulator")
    for op, place, neutral in (("mul", 1, 1.0), ("add", 2, 0.0)):
        value = node.inputs[place]
        array = constant_of(value)
        if value is None or array is None or bool(np.all(array == neutral)):
            continue
        number = array.reshape(-1)[0]
        is_number = bool(np.all(array == number))
        operand = (
            builder.const(float(number)) if is_number else read(value, (node.name or "", place), builder, {})
        )
        result = builder.op(op, result, operand)
    return result


def _count(value: ir.Value | None) -> int:
    array = constant_of(value)
    return -1 if array is None else array.size
