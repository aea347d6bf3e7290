# SPDX-License-Identifier: Apache-2.0
"""Resize and Upsample, axis by axis: each output element is a weighted sum of a few input elements.

Places and weights are computed in float64 in host memory, so that every device rounds "nearest" alike.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from quantrt.errors import ModelError
from quantrt.operators.operator import Operator

__all__ = ["OPERATORS", "resize", "upsample", "upsample_by_attribute"]


@dataclass(frozen=True)
class _Rule:
    """The attributes of Resize that hold for every axis, under their ONNX names."""

    mode: str
    coordinate_transformation_mode: str = "half_pixel"
    nearest_mode: str = "round_prefer_floor"
    cubic_coeff_a: float = -0.75
    exclude_outside: bool = False
    extrapolation_value: float = 0.0
    antialias: bool = False


def upsample_by_attribute(x: torch.Tensor, *, scales: Sequence[float], mode: str = "nearest") -> torch.Tensor:
    """Opset 7: the scales are an attribute."""
    return _resize(x, _old_rule(mode), list(scales), _scaled(x, scales), range(x.dim()), None)


def upsample(x: torch.Tensor, scales: torch.Tensor, *, mode: str = "nearest") -> torch.Tensor:
    """Opset 9, and Resize of opset 10: output i reads input i / scale, "nearest" rounds down."""
    factors = scales.tolist()
    return _resize(x, _old_rule(mode), factors, _scaled(x, factors), range(x.dim()), None)


def resize(
    x: torch.Tensor,
    roi: torch.Tensor | None = None,
    scales: torch.Tensor | None = None,
    sizes: torch.Tensor | None = None,
    *,
    antialias: int = 0,
    axes: Sequence[int] | None = None,
    coordinate_transformation_mode: str = "half_pixel",
    cubic_coeff_a: float = -0.75,
    exclude_outside: int = 0,
    extrapolation_value: float = 0.0,
    keep_aspect_ratio_policy: str = "stretch",
    mode: str = "nearest",
    nearest_mode: str = "round_prefer_floor",
) -> torch.Tensor:
    """x resized along the axes to `sizes`, or by `scales` (rounded down).

    Args:
        roi: starts, then ends, per axis, as fractions of it; for tf_crop_and_resize.
        keep_aspect_ratio_policy: stretch, or one scale for all axes: not_larger, not_smaller than sizes.
    """
    chosen = range(x.dim()) if axes is None else [axis % x.dim() for axis in axes]
    rule = _Rule(
        mode,
        coordinate_transformation_mode,
        nearest_mode,
        cubic_coeff_a,
        bool(exclude_outside),
        extrapolation_value,
        bool(antialias),
    )
    if scales is not None and scales.numel():
        factors = scales.tolist()
        targets = [int(x.shape[axis] * f) for axis, f in zip(chosen, factors, strict=True)]
    elif sizes is not None:
        targets = sizes.tolist()
        factors = [n / x.shape[axis] for axis, n in zip(chosen, targets, strict=True)]
        if keep_aspect_ratio_policy != "stretch":
            pick = {"not_larger": min, "not_smaller": max}.get(keep_aspect_ratio_policy)
            if pick is None:
                raise ModelError("unknown keep_aspect_ratio_policy of Resize", got=keep_aspect_ratio_policy)
            factors = [pick(factors)] * len(factors)
            targets = [int(x.shape[axis] * f + 0.5) for axis, f in zip(chosen, factors, strict=True)]
    else:
        raise ModelError("a Resize has neither scales nor sizes")
    window = None if roi is None or not roi.numel() else roi.tolist()
    return _resize(x, rule, factors, targets, chosen, window)


def _old_rule(mode: str) -> _Rule:
    return _Rule("linear" if mode == "bilinear" else mode, "asymmetric", "floor")


def _scaled(x: torch.Tensor, scales: Sequence[float]) -> list[int]:
    return [int(n * scale) for n, scale in zip(x.shape, scales, strict=True)]


def _resize(
    x: torch.Tensor,
    rule: _Rule,
    scales: Sequence[float],
    sizes: Sequence[int],
    axes: Sequence[int],
    roi: Sequence[float] | None,
) -> torch.Tensor:
    is_weighted = rule.mode != "nearest"
    y = x.to(torch.promote_types(x.dtype, torch.float32)) if is_weighted else x
    is_cropped = rule.coordinate_transformation_mode == "tf_crop_and_resize"
    for place, (axis, scale, size) in enumerate(zip(axes, scales, sizes, strict=True)):
        window = None if roi is None else (roi[place], roi[place + len(axes)])
        if scale == 1 and size == x.shape[axis] and (not is_cropped or window == (0.0, 1.0)):
            continue
        y = _resize_axis(y, axis, scale, size, rule, window)
    if is_weighted and not x.is_floating_point():
        limits = torch.iinfo(x.dtype)
        y = torch.round(y).clamp(limits.min, limits.max)
    return y.to(x.dtype)


def _resize_axis(
    x: torch.Tensor, axis: int, scale: float, size: int, rule: _Rule, roi: tuple[float, float] | None
) -> torch.Tensor:
    n = x.shape[axis]
    places = _places(n, size, scale, rule.coordinate_transformation_mode, roi)
    left = torch.ceil(places) - 1  # the element strictly to the left; the rest is in (0, 1]
    indices, weights = _taps(places - left, scale, rule)
    indices = indices + left.to(torch.int64).reshape(-1, 1)
    if rule.exclude_outside:
        weights = torch.where((indices >= 0) & (indices < n), weights, 0.0)
        total = weights.sum(1, keepdim=True)
        weights = weights / torch.where(total == 0, 1.0, total)
    indices = indices.clamp(0, n - 1).to(x.device)
    picked = x.index_select(axis, indices.reshape(-1))
    if indices.shape[1] == 1:
        y = picked
    else:
        picked = picked.reshape([*x.shape[:axis], *indices.shape, *x.shape[axis + 1 :]])
        spread = weights.to(x.device, x.dtype).reshape([*indices.shape] + [1] * (x.dim() - 1 - axis))
        y = (picked * spread).sum(axis + 1)
    if rule.coordinate_transformation_mode == "tf_crop_and_resize":
        outside = ((places < 0) | (places > n - 1)).to(x.device).reshape([-1] + [1] * (x.dim() - 1 - axis))
        y = torch.where(outside, torch.full_like(y, rule.extrapolation_value), y)
    return y


def _places(n: int, size: int, scale: float, mode: str, roi: tuple[float, float] | None) -> torch.Tensor:
    """Where each of `size` outputs reads in an input of n elements, float64."""
    i = torch.arange(size, dtype=torch.float64)
    length = scale * n  # the size of the output before it was rounded
    if mode == "half_pixel" or (mode == "pytorch_half_pixel" and length != 1):
        return (i + 0.5) / scale - 0.5
    if mode == "pytorch_half_pixel":
        return torch.full_like(i, -0.5)
    if mode == "half_pixel_symmetric":
        return n / 2 * (1 - size / length) + (i + 0.5) / scale - 0.5
    if mode == "asymmetric":
        return i / scale
    if mode == "align_corners":
        return i * (n - 1) / (length - 1) if length != 1 else torch.zeros_like(i)
    if mode == "tf_half_pixel_for_nn":
        return (i + 0.5) / scale
    if mode == "tf_crop_and_resize" and roi is not None:
        start, end = roi
        if length == 1:
            return torch.full_like(i, (start + end) * (n - 1) / 2)
        return start * (n - 1) + i * (end - start) * (n - 1) / (length - 1)
    raise ModelError("unknown coordinate_transformation_mode of Resize", got=mode)


def _taps(rest: torch.Tensor, scale: float, rule: _Rule) -> tuple[torch.Tensor, torch.Tensor]:
    """Input elements relative to the left one [outputs, taps], and their weights."""
    if rule.mode == "nearest":
        return _nearest(rest, rule.nearest_mode), torch.ones((len(rest), 1), dtype=torch.float64)
    reach = {"linear": 1, "cubic": 2}.get(rule.mode)
    if reach is None:
        raise ModelError("unknown mode of Resize", got=rule.mode, expected="nearest, linear or cubic")
    # Antialiasing, when shrinking, widens the kernel by the scale.
    step = min(scale, 1.0) if rule.antialias else 1.0
    first = math.floor(-reach / step) + 1
    offsets = torch.arange(first, 2 - first)
    distance = ((offsets - rest.reshape(-1, 1)) * step).abs()
    if reach == 1:
        weights = (1 - distance).clamp(min=0)
    else:
        weights = _cubic(distance, rule.cubic_coeff_a)
    return offsets.expand(len(rest), -1), weights / weights.sum(1, keepdim=True)


def _nearest(rest: torch.Tensor, mode: str) -> torch.Tensor:
    """0 for the left element, 1 for the right one."""
    rules = {
        "round_prefer_floor": rest > 0.5,
        "round_prefer_ceil": rest >= 0.5,
        "floor": rest == 1,
        "ceil": rest > 0,
    }
    if mode not in rules:
        raise ModelError("unknown nearest_mode of Resize", got=mode, expected=", ".join(rules))
    return rules[mode].to(torch.int64).reshape(-1, 1)


def _cubic(d: torch.Tensor, a: float) -> torch.Tensor:
    """Keys' kernel: Cubic convolution interpolation for digital image processing, 1981, equation 4."""
    near = (a + 2) * d**3 - (a + 3) * d**2 + 1
    far = a * d**3 - 5 * a * d**2 + 8 * a * d - 4 * a
    return torch.where(d <= 1, near, torch.where(d < 2, far, torch.zeros_like(d)))


OPERATORS = (
    Operator("Upsample", 7, upsample_by_attribute, until=8),
    Operator("Upsample", 9, upsample),
    Operator("Resize", 10, upsample, until=10),
    Operator("Resize", 11, resize),
)
