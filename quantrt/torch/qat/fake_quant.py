# SPDX-License-Identifier: Apache-2.0
"""Fake quantization: what QuantizeLinear and DequantizeLinear do to a tensor, with gradients to train by.

    q(x) = clip(rint(x / s), qmin - z, qmax - z)        y = q(x) * s

the same float32 operations as in quantize/scales/qparams.py, so the codes are the same. Gradients are those
of Learned Step Size Quantization (Esser et al. 2020, arXiv 1902.08153), equations 3 and 5, where clipping
counts from where the code is clipped, half a step beyond the last one:

    dy/dx = 1 where no code is clipped, else 0
    dy/ds = q(x) - x / s where no code is clipped, else q(x)

scaled by 1 / sqrt(N * qmax) (section 2.2), N the elements that a scale is shared by. A scale is learned as
its ratio to the calibrated one, which starts at 1: an optimizer with steps of a fixed size, such as Adam,
then moves a small scale by as much of itself as a large one. Plain gradient descent moves s as in the paper.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import nn

from quantrt.errors import UsageError
from quantrt.quantize.scales.qparams import QParams

__all__ = ["FakeQuantize", "FakeQuantizeBias"]

LEAST_RATIO = 1.0 / 64
"""Of a learned scale to the calibrated one: it stays positive, whatever an optimizer does."""

TINY = float(np.finfo(np.float32).tiny)
"""Scales below it are 1, as quantize/scales/qparams.py has them."""


class _Round(torch.autograd.Function):
    """q(x) * s, for a scale that broadcasts against x."""

    @staticmethod
    def forward(
        ctx: Any, x: torch.Tensor, scale: torch.Tensor, factor: torch.Tensor, bounds: tuple[int, int]
    ) -> Any:
        """Values on the grid; `factor` scales the gradient of the scale."""
        ctx.save_for_backward(x, scale, factor)
        ctx.bounds = bounds
        lo, hi = bounds
        return torch.clamp(torch.round(x / scale), lo, hi) * scale

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        """Gradients of x and of the scale."""
        (gradient,) = gradients
        x, scale, factor = ctx.saved_tensors
        lo, hi = ctx.bounds
        steps = x / scale
        codes = torch.round(steps)
        is_inside = (codes >= lo) & (codes <= hi)
        of_scale = None
        if ctx.needs_input_grad[1]:
            slope = torch.clamp(codes, lo, hi) - torch.where(is_inside, steps, torch.zeros_like(steps))
            of_scale = (gradient * slope).sum_to_size(scale.shape) * factor
        return torch.where(is_inside, gradient, torch.zeros_like(gradient)), of_scale, None, None


def _rounded(
    x: torch.Tensor, scale: torch.Tensor, factor: torch.Tensor, bounds: tuple[int, int]
) -> torch.Tensor:
    found: torch.Tensor = _Round.apply(x, scale, factor, bounds)  # type: ignore[no-untyped-call]  # torch's
    return found


class FakeQuantize(nn.Module):
    """Rounds a tensor to a grid; one module for all tensors that share it.

    Args:
        qparams: the calibrated grid; of axes it may have one.
        elements: of one sample that a scale is shared by, for the gradient's factor.
        rank: of the tensor.
        is_learned: whether the scale is trained. Zero points never are.
    """

    def __init__(self, qparams: QParams, *, elements: int, rank: int, is_learned: bool) -> None:
        super().__init__()
        self.grid, self.elements = qparams, elements
        self.lo, self.hi = _bounds(qparams)
        self.shape = tuple(qparams.broadcast(qparams.scale, rank).shape)
        first = torch.from_numpy(np.array(qparams.scale, np.float32)).reshape(self.shape)
        self.first_scale: torch.Tensor
        self.factor: torch.Tensor
        self.register_buffer("first_scale", first)
        self.register_buffer("factor", self._factor(), persistent=False)
        if is_learned:
            self.ratio = nn.Parameter(torch.ones_like(first))
        else:
            self.register_buffer("ratio", torch.ones_like(first))
        self.is_enabled = True

    @property
    def scale(self) -> torch.Tensor:
        """The scale in use, which broadcasts against the tensor."""
        return self.first_scale * self.ratio.clamp_min(LEAST_RATIO)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """`x` on the grid."""
        if not self.is_enabled:
            return x
        return _rounded(x, self.scale, self.factor, (self.lo, self.hi))

    def _factor(self) -> torch.Tensor:
        """Of the gradient of `ratio`, f32 as the scale."""
        spread = math.sqrt(max(self.elements, 1) * max(self.hi, 1))
        return (1.0 / spread / self.first_scale.double().square()).float()

    def get_extra_state(self) -> torch.Tensor:
        """What a state holds beside scales, int32: the least code, the largest, the zero points."""
        zero_points = np.asarray(self.grid.zero_point, np.int32).reshape(-1)
        return torch.from_numpy(
            np.concatenate([[self.grid.qmin, self.grid.qmax], zero_points]).astype(np.int32)
        )

    def set_extra_state(self, state: torch.Tensor) -> None:
        """Take the zero points of a state; its scales are loaded already.

        Raises:
            UsageError: its codes are not of this type.
        """
        qmin, qmax, *zero_points = state.tolist()
        if (qmin, qmax) != (self.grid.qmin, self.grid.qmax):
            raise UsageError(
                "cannot load this state: its codes are of another target",
                got=f"codes from {qmin} to {qmax}",
                expected=f"{self.grid.qmin} to {self.grid.qmax}",
                hint="`prepare(..., target=)` as it was for this state",
            )
        shape = self.grid.zero_point.shape
        self.grid = replace(self.grid, zero_point=np.array(zero_points, np.int32).reshape(shape))
        self.lo, self.hi = _bounds(self.grid)
        self.factor = self._factor()

    def qparams(self) -> QParams:
        """The grid with the scale in use."""
        scale = self.scale.detach().cpu().numpy().reshape(self.grid.scale.shape).astype(np.float32)
        grid = self.grid
        return QParams(scale, grid.zero_point, grid.dtype, grid.axis, grid.qmin, grid.qmax)

    def extra_repr(self) -> str:
        """What print(module) shows of it."""
        count = self.first_scale.numel()
        return f"{self.grid.dtype.name} {self.lo}..{self.hi}, {count} scale{'s' if count > 1 else ''}"


def _bounds(grid: QParams) -> tuple[int, int]:
    """The least and the largest code, less the zero point that all channels share."""
    zero_point = int(grid.zero_point.reshape(-1)[0]) if grid.zero_point.size else 0
    return grid.qmin - zero_point, grid.qmax - zero_point


class FakeQuantizeBias(nn.Module):
    """Rounds a bias to int32 codes on the product of the scales beside it; its gradient passes through.

    Args:
        activation, weight: the modules that round what the bias is added to the product of. They belong to
            others.
    """

    def __init__(self, activation: FakeQuantize, weight: FakeQuantize) -> None:
        super().__init__()
        self._beside = (activation, weight)
        self.is_enabled = True

    def forward(self, bias: torch.Tensor) -> torch.Tensor:
        """`bias` [C] on its grid."""
        if not self.is_enabled:
            return bias
        activation, weight = self._beside
        scale = (activation.scale.detach() * weight.scale.detach()).reshape(-1)
        scale = torch.where(scale >= TINY, scale, torch.ones_like(scale))
        return _rounded(bias, scale, torch.ones_like(scale), (-(1 << 31), (1 << 31) - 1))
