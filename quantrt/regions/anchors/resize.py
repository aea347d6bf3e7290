# SPDX-License-Identifier: Apache-2.0
"""Resize of images: nearest pixels at whole factors, and linear interpolation."""

from __future__ import annotations

from collections.abc import Sequence

import onnx_ir as ir

from quantrt.ir.edit import constant_of, int_attribute, is_operator
from quantrt.regions.anchors.anchor import Anchor, is_float
from quantrt.regions.expression import Expression
from quantrt.regions.facts.facts import Facts
from quantrt.regions.facts.shape_rules import Shape
from quantrt.regions.region import Resize

__all__ = ["find_resize"]

_MAX_NEAREST, _MAX_LINEAR = 2, 3
"""Spatial axes."""

_CENTRES = ("half_pixel", "pytorch_half_pixel", "half_pixel_symmetric")
_HALF = 2


def find_resize(position: int, facts: Facts) -> Anchor | str | None:
    """The anchor of a node; why there is none; None when it is no Resize."""
    node = facts.nodes[position]
    if not is_operator(node, "Resize") or not node.inputs:
        return None
    x, shape = node.inputs[0], facts.sizes.shape(node.inputs[0])
    if x is None or not is_float(x, facts):
        return "its input is not a float activation"
    if shape is None or len(shape) < 3 or not isinstance(shape[1], int):
        return "its input is no image, or the number of its channels is not known"
    scales = _scales(node, facts, shape)
    if isinstance(scales, str):
        return scales
    is_nearest = _text(node, "mode", "nearest") == "nearest"
    reason = _why_not_nearest(node, scales) if is_nearest else _why_not_linear(node, scales)
    if reason is not None:
        return reason
    has_corners = _text(node, "coordinate_transformation_mode", _CENTRES[0]) == "align_corners"

    def formula(epilogue: Expression) -> Resize:
        return Resize((node.name or "", 0), is_nearest, scales, has_corners and not is_nearest, epilogue)

    return Anchor(
        position, x, node.outputs[0], shape[1], 1 - len(shape), lambda b: (b.operand("accumulator"),), formula
    )


def _scales(node: ir.Node, facts: Facts, shape: Shape) -> tuple[float, ...] | str:
    """Factors of the spatial axes; why they are not known."""
    rank = len(shape)
    attribute = node.attributes.get("axes")
    axes = [axis % rank for axis in attribute.as_ints()] if attribute is not None else list(range(rank))
    given = node.inputs[2] if len(node.inputs) > 2 else None
    constant = constant_of(given)
    if given is not None and given.name and constant is None:
        return "its factors are computed while it runs"  # pixels depend on them, not on the sizes alone
    if constant is not None and constant.size == len(axes):
        factors = [float(factor) for factor in constant.reshape(-1)]
    else:
        target = facts.sizes.shape(node.outputs[0])
        if (
            target is None
            or len(target) != rank
            or _text(node, "keep_aspect_ratio_policy", "stretch") != "stretch"
        ):
            return "the sizes of its result are not known"
        found = [_ratio(target[axis], shape[axis]) for axis in axes]
        if None in found:
            return "the sizes of its result are not known, or no multiples"
        factors = [factor for factor in found if factor is not None]
    by_axis = dict(zip(axes, factors, strict=True))
    if any(by_axis.get(axis, 1.0) != 1.0 for axis in (0, 1)):
        return "it resizes the batch or the channels"
    return tuple(by_axis.get(axis, 1.0) for axis in range(2, rank))


def _ratio(target: object, source: object) -> float | None:
    if target == source:
        return 1.0
    if isinstance(target, int) and isinstance(source, int) and source > 0 and target % source == 0:
        return target / source
    return None


def _why_not_nearest(node: ir.Node, scales: Sequence[float]) -> str | None:
    """Why output i is not input floor(i / scale); None where it is."""
    if len(scales) > _MAX_NEAREST:
        return f"{len(scales)} spatial axes"
    if any(scale < 1 or scale != int(scale) for scale in scales):
        return "its factors are no whole numbers"
    mode = _text(node, "coordinate_transformation_mode", _CENTRES[0])
    rounding = _text(node, "nearest_mode", "round_prefer_floor")
    reads_left = (
        (mode in ("asymmetric", "tf_half_pixel_for_nn") and rounding == "floor")
        or (mode in _CENTRES and rounding.startswith("round"))
        or (mode == "asymmetric" and rounding == "round_prefer_floor" and max(scales) <= _HALF)
    )
    return None if reads_left else f"coordinates '{mode}' with '{rounding}'"


def _why_not_linear(node: ir.Node, scales: Sequence[float]) -> str | None:
    """Why torch does not interpolate like this; None where it does."""
    mode = _text(node, "coordinate_transformation_mode", _CENTRES[0])
    reasons = (
        (_text(node, "mode", "nearest") != "linear", "neither nearest nor linear"),
        (mode not in (*_CENTRES[:2], "align_corners"), f"coordinates '{mode}'"),
        (
            mode == "align_corners" and any(scale != int(scale) for scale in scales),
            "corners of images whose factors are no whole numbers",
        ),
        (bool(int_attribute(node, "antialias", 0)), "antialiasing"),
        (bool(int_attribute(node, "exclude_outside", 0)), "pixels outside are left out"),
        (len(scales) > _MAX_LINEAR, f"{len(scales)} spatial axes"),
    )
    return next((reason for is_so, reason in reasons if is_so), None)


def _text(node: ir.Node, name: str, default: str) -> str:
    attribute = node.attributes.get(name)
    return default if attribute is None else attribute.as_string()
