# SPDX-License-Identifier: Apache-2.0
"""Reading images at computed places: GridSample, AffineGrid, RoiAlign."""

from __future__ import annotations

import math

import torch
from torch.nn import functional

from quantrt.errors import ModelError
from quantrt.operators.operator import Operator

__all__ = ["OPERATORS", "affine_grid", "grid_sample", "roi_align", "roi_align_of_pixels"]

_GRID_MODES = {
    "linear": "bilinear",
    "bilinear": "bilinear",
    "nearest": "nearest",
    "cubic": "bicubic",
    "bicubic": "bicubic",
}
"""Interpolations of GridSample, opsets 16 and 20, by torch's names."""


def grid_sample(
    x: torch.Tensor,
    grid: torch.Tensor,
    *,
    align_corners: int = 0,
    mode: str = "linear",
    padding_mode: str = "zeros",
) -> torch.Tensor:
    """x [N, C, (D,) H, W] at the places grid [N, ..., 2 or 3] of coordinates (x, y, (z)) in [-1, 1]."""
    if mode not in _GRID_MODES or padding_mode not in ("zeros", "border", "reflection"):
        raise ModelError("unknown mode of GridSample", got=f"mode {mode}, padding {padding_mode}")
    if x.dim() not in (4, 5) or (x.dim() == 5 and _GRID_MODES[mode] == "bicubic"):
        raise ModelError(
            "GridSample is done for images, and for volumes unless cubic", got=f"{mode} on rank {x.dim()}"
        )
    return functional.grid_sample(
        x, grid.to(x.dtype), _GRID_MODES[mode], padding_mode, align_corners=bool(align_corners)
    )


def affine_grid(theta: torch.Tensor, size: torch.Tensor, *, align_corners: int = 0) -> torch.Tensor:
    """The grid of an affine map theta [N, 2, 3] or [N, 3, 4] for an output of the size."""
    return functional.affine_grid(theta, size.tolist(), align_corners=bool(align_corners))


def roi_align_of_pixels(
    x: torch.Tensor,
    rois: torch.Tensor,
    batch_indices: torch.Tensor,
    *,
    mode: str = "avg",
    output_height: int = 1,
    output_width: int = 1,
    sampling_ratio: int = 0,
    spatial_scale: float = 1.0,
) -> torch.Tensor:
    """Opset 10: regions are not moved by half a pixel, and at least one pixel large."""
    return roi_align(
        x,
        rois,
        batch_indices,
        coordinate_transformation_mode="output_half_pixel",
        mode=mode,
        output_height=output_height,
        output_width=output_width,
        sampling_ratio=sampling_ratio,
        spatial_scale=spatial_scale,
    )


def roi_align(
    x: torch.Tensor,
    rois: torch.Tensor,
    batch_indices: torch.Tensor,
    *,
    coordinate_transformation_mode: str = "half_pixel",
    mode: str = "avg",
    output_height: int = 1,
    output_width: int = 1,
    sampling_ratio: int = 0,
    spatial_scale: float = 1.0,
) -> torch.Tensor:
    """Regions of x [N, C, H, W] on a grid of bins, each the mean or maximum of samples (arXiv:1703.06870).

    Args:
        rois: [R, 4] as x1, y1, x2, y2, in units of 1 / spatial_scale pixels.
        batch_indices: [R], the image of each region.
        mode: avg; or max, over the weighted neighbours of the samples, as ONNX defines it.
        sampling_ratio: samples per bin and axis; 0: as many as the bin has pixels, rounded up.

    Returns:
        [R, C, output_height, output_width].
    """
    is_half = coordinate_transformation_mode == "half_pixel"
    bounds = (rois.to(torch.float64) * spatial_scale - (0.5 if is_half else 0.0)).cpu().tolist()
    pooled = []
    for image, (x1, y1, x2, y2) in zip(batch_indices.tolist(), bounds, strict=True):
        least = -math.inf if is_half else 1.0
        rows = _bin_samples(y1, max(y2 - y1, least), output_height, sampling_ratio)
        columns = _bin_samples(x1, max(x2 - x1, least), output_width, sampling_ratio)
        pooled.append(_pool_region(x[image], rows, columns, mode))
    if not pooled:
        return x.new_zeros((0, x.shape[1], output_height, output_width))
    return torch.stack(pooled)


def _bin_samples(start: float, length: float, bins: int, ratio: int) -> torch.Tensor:
    """Places of the samples along one axis [bins, samples], float64."""
    size = length / bins
    count = ratio if ratio > 0 else max(math.ceil(size), 0)
    inner = (torch.arange(count, dtype=torch.float64) + 0.5) * size / max(count, 1)
    return start + torch.arange(bins, dtype=torch.float64).reshape(-1, 1) * size + inner


def _neighbours(places: torch.Tensor, size: int) -> tuple[tuple[torch.Tensor, torch.Tensor], ...]:
    """Index and weight of the two elements around each place; both weights 0 more than 1 outside."""
    outside = (places < -1) | (places > size)
    held = places.clamp(0, size - 1)
    low = held.floor()
    high = (low + 1).clamp(max=size - 1)
    rest = held - low
    return (
        (low.to(torch.int64), torch.where(outside, 0.0, 1 - rest)),
        (high.to(torch.int64), torch.where(outside, 0.0, rest)),
    )


def _pool_region(image: torch.Tensor, rows: torch.Tensor, columns: torch.Tensor, mode: str) -> torch.Tensor:
    """[C, H, W] at samples rows [bins, s] x columns [bins, t], to [C, bins, bins]."""
    c, h, w = image.shape
    parts = []
    for row, row_weight in _neighbours(rows, h):
        for column, column_weight in _neighbours(columns, w):
            taken = image[:, row.reshape(-1).to(image.device)][:, :, column.reshape(-1).to(image.device)]
            weight = row_weight.reshape(-1, 1) * column_weight.reshape(1, -1)
            parts.append(taken * weight.to(image.device, image.dtype))
    split = (c, *rows.shape, *columns.shape)
    if mode == "avg":
        total = (parts[0] + parts[1] + parts[2] + parts[3]).reshape(split)
        return total.sum((2, 4)) / max(rows.shape[1] * columns.shape[1], 1)
    if mode == "max":
        largest = torch.stack(parts).amax(0).reshape(split)
        return largest.amax((2, 4)) if largest.numel() else largest.sum((2, 4))
    raise ModelError("unknown mode of RoiAlign", got=mode, expected="avg or max")


OPERATORS = (
    Operator("GridSample", 16, grid_sample),
    Operator("AffineGrid", 20, affine_grid),
    Operator("RoiAlign", 10, roi_align_of_pixels, until=15),
    Operator("RoiAlign", 16, roi_align),
)
