# SPDX-License-Identifier: Apache-2.0
"""What every formula means, in torch: the reference that tactics are held against, on any device.

Products are summed in float64, exact for codes, then rounded to float32.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from quantrt.errors import InternalError
from quantrt.kernels.concat.spec import joined_order
from quantrt.kernels.rows.walk import View
from quantrt.operators.images.conv import conv_transpose
from quantrt.operators.images.pool import average_pool, max_pool
from quantrt.operators.images.resize import resize
from quantrt.operators.operator import Context
from quantrt.regions.region import (
    Attention,
    Concat,
    Conv,
    ConvTranspose,
    Formula,
    Gemm,
    GroupNorm,
    LinearAttention,
    Pool,
    PooledConv,
    Resize,
    ResizedConv,
    Rows,
)
from quantrt.runtime.cuda.reference.attend import attend
from quantrt.runtime.cuda.reference.evaluate import evaluate

__all__ = ["compute"]

Tensor = torch.Tensor


def compute(
    formula: Formula,
    inputs: Sequence[Tensor],
    outputs: Sequence[str],
    weight: Tensor | None = None,
    constants: Mapping[str, Tensor] | None = None,
) -> list[Tensor]:
    """The outputs of a formula.

    Args:
        inputs: x, then one tensor for every tensor operand in order (q, k, v and the mask for Attention);
            floats, or codes.
        outputs: numpy's name of the element type of each.
        weight: of a product, in the layout that the formula says; floats, or codes.
        constants: of the expression, by name.

    Raises:
        InternalError: the formula has no expression to compute.
    """
    constants = constants or {}
    match formula:
        case Rows(expression):
            results = evaluate(expression, None, inputs, constants)
            if formula.channels_last and results[0].dim() > 2:
                results = [_channels_innermost(result) for result in results]
        case Gemm() if weight is not None:
            sums = _gemm(formula, inputs[0], weight)
            left, right = sums.chunk(2, -1) if formula.is_gated else (sums, None)
            results = evaluate(formula.epilogue, left, inputs[1:], constants, right=right)
        case Conv() if weight is not None:
            results = _finished(formula, _conv(formula, inputs[0], weight), inputs, constants)
        case ConvTranspose() if weight is not None:
            results = _finished(formula, _conv_transpose(formula, inputs[0], weight), inputs, constants)
        case Pool():
            results = _finished(formula, _pool(formula, inputs[0]), inputs, constants)
        case PooledConv(convolution, pool) if weight is not None:
            stored = compute(convolution, inputs, outputs, weight, constants)
            results = [_pool(pool, image) for image in stored]
        case ResizedConv(resized, convolution) if weight is not None:
            x = _resized(resized, inputs[0])
            return compute(convolution, [x, *inputs[1:]], outputs, weight, constants)
        case Resize():
            results = _finished(formula, _resized(formula, inputs[0]), inputs, constants)
        case GroupNorm(channels=channels):
            shifted = formula.shift is not None
            normal = _group_norm(formula, inputs[0], inputs[1] if shifted else None)
            by_channel = {name: _by_channel(array, channels) for name, array in constants.items()}
            shaped = _shaped(by_channel, normal)
            results = evaluate(formula.epilogue, normal, inputs[1 + shifted :], shaped)
        case Concat(axis=axis):
            results = [_concat(inputs, axis)]
        case LinearAttention(epsilon=epsilon):
            results = [_linear_attention(inputs, epsilon)]
        case Attention():
            results = evaluate(formula.epilogue, attend(formula, inputs, constants), (), {})
        case _:
            raise InternalError(f"no reference for this formula: {type(formula).__name__}")
    return [_stored(result, dtype) for result, dtype in zip(results, outputs, strict=True)]


def _finished(
    formula: Conv | ConvTranspose | Pool | Resize,
    image: Tensor,
    inputs: Sequence[Tensor],
    constants: Mapping[str, Tensor],
) -> list[Tensor]:
    """The epilogue of an image."""
    return evaluate(formula.epilogue, image, inputs[1:], _shaped(constants, image))


def _shaped(constants: Mapping[str, Tensor], image: Tensor) -> dict[str, Tensor]:
    """Constants of each channel, along the channels of an image."""
    return {name: _along_channels(array, image.dim()) for name, array in constants.items()}


def _linear_attention(inputs: Sequence[Tensor], epsilon: float) -> Tensor:
    """In float64; heads beside each other in memory, [B, S, H, E], as channels of an image are."""
    q, k, v = (x.double() for x in inputs)
    q, k = q.relu(), k.relu()
    divisor = (q * k.sum(2, keepdim=True)).sum(-1, keepdim=True) + epsilon
    return (q @ (k.mT @ v) / divisor).float().transpose(1, 2).contiguous().transpose(1, 2)


def _gemm(formula: Gemm, x: Tensor, weight: Tensor) -> Tensor:
    w = weight.double()
    return torch.matmul(x.double(), w.t() if formula.is_transposed else w).float()


def _conv(formula: Conv, x: Tensor, weight: Tensor) -> Tensor:
    rank = len(formula.strides)
    begins, ends = formula.pads[:rank], formula.pads[rank:]
    padding = [n for pair in zip(reversed(begins), reversed(ends), strict=True) for n in pair]
    padded = torch.nn.functional.pad(x.double(), padding, value=float(formula.pad_code))
    convolve = (torch.nn.functional.conv1d, torch.nn.functional.conv2d, torch.nn.functional.conv3d)[rank - 1]
    result: Tensor = convolve(
        padded,
        weight.double(),
        None,
        list(formula.strides),
        0,
        list(formula.dilations),
        formula.groups,
    )
    return _channels_innermost(result.float())


def _conv_transpose(formula: ConvTranspose, x: Tensor, weight: Tensor) -> Tensor:
    result = conv_transpose(
        x.double(),
        weight.double(),
        strides=formula.strides,
        dilations=formula.dilations,
        pads=formula.pads,
        output_padding=formula.output_padding,
        group=formula.groups,
    )
    return _channels_innermost(result.float())


def _pool(formula: Pool, x: Tensor) -> Tensor:
    """What was pooled, in float32: maxima as they are, means of sums in float64."""
    if formula.is_global:
        axes, keeps = list(range(2, x.dim())), formula.keeps_axes
        pooled = (
            x.amax(axes, keepdim=keeps) if formula.kind == "max" else x.double().mean(axes, keepdim=keeps)
        )
        return pooled.float()
    window: dict[str, Any] = {
        "kernel_shape": formula.kernel,
        "strides": formula.strides,
        "dilations": formula.dilations,
        "pads": formula.pads,
        "ceil_mode": int(formula.has_ceil),
    }
    if formula.kind == "max":
        pooled, _ = max_pool(x, context=Context(x.device, 1), **window)
    else:
        # A mean of codes less their zero point, and that added again, is one with padding of that code.
        shifted = x.double() - formula.pad_code
        pooled = average_pool(shifted, count_include_pad=int(formula.counts_padding), **window)
        pooled = pooled + formula.pad_code
    return _channels_innermost(pooled.float())


def _resized(formula: Resize, x: Tensor) -> Tensor:
    """What was moved, or interpolated in float64, in float32."""
    if formula.is_nearest:
        y = resize(
            x.float(),
            scales=torch.tensor((1.0, 1.0, *formula.scales)),
            coordinate_transformation_mode="asymmetric",
            nearest_mode="floor",
        )
        return _channels_innermost(y)
    coordinates = "align_corners" if formula.has_corners else "half_pixel"
    y = resize(
        x.double(),
        scales=torch.tensor((1.0, 1.0, *formula.scales), dtype=torch.float64),
        mode="linear",
        coordinate_transformation_mode=coordinates,
    )
    return _channels_innermost(y.float())


def _group_norm(formula: GroupNorm, x: Tensor, shift: Tensor | None) -> Tensor:
    """Mean 0 and variance 1 in every group of an image: statistics in float64, then float32."""
    wide = x.double() if shift is None else x.double() + shift.double()
    depth, pixels = formula.channels // formula.groups, math.prod(x.shape[2:])
    groups = wide.reshape(x.shape[0], formula.groups, depth, pixels)
    centred = groups - groups.mean((2, 3), keepdim=True)
    variance = centred.square().mean((2, 3), keepdim=True)
    return _channels_innermost((centred / (variance + formula.epsilon).sqrt()).reshape(x.shape).float())


def _by_channel(array: Tensor, channels: int) -> Tensor:
    """What has a number for every group of channels, with one for every channel."""
    is_by_group = 1 < array.numel() < channels
    return array.reshape(-1).repeat_interleave(channels // array.numel()) if is_by_group else array


def _concat(inputs: Sequence[Tensor], axis: int) -> Tensor:
    """Tensors side by side, their axes in memory as `joined_order` says."""
    order = joined_order([View(tuple(x.shape), x.stride()) for x in inputs])
    joined = torch.cat(list(inputs), axis).permute(order).contiguous()
    return joined.permute(sorted(range(len(order)), key=order.__getitem__))


def _channels_innermost(x: Tensor) -> Tensor:
    """The same values, axis 1 innermost in memory, as convolutions keep their activations."""
    return x.movedim(1, -1).contiguous().movedim(-1, 1)


def _along_channels(array: Tensor, rank: int) -> Tensor:
    """A constant of a convolution's epilogue, [C] in any broadcast shape, as [C, 1, ...]."""
    return array.reshape(-1, *[1] * (rank - 2)) if array.numel() > 1 else array.reshape(())


def _stored(result: Tensor, dtype: str) -> Tensor:
    if dtype == "bool":
        return result != 0
    if dtype == "int8":  # NaN has the lowest code
        return torch.nan_to_num(result, nan=-128.0).to(torch.int8)
    kind: torch.dtype = getattr(torch, dtype)
    return result.to(kind)
