# SPDX-License-Identifier: Apache-2.0
"""What every formula means, in torch: the reference that tactics are held against, on any device.

Products are summed in float64, exact for codes, then rounded to float32; expressions go instruction by
instruction in float32, each result rounded, nothing fused.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from quantrt.errors import InternalError
from quantrt.kernels.concat.spec import joined_order
from quantrt.kernels.rows.walk import View
from quantrt.operators.conv import conv_transpose
from quantrt.operators.operator import Context
from quantrt.operators.pool import average_pool, max_pool
from quantrt.operators.resize import resize
from quantrt.regions.expression import Expression, Instruction
from quantrt.regions.region import (
    Attention,
    Concat,
    Conv,
    ConvTranspose,
    Formula,
    Gemm,
    GroupNorm,
    Pool,
    Resize,
    Rows,
)
from quantrt.runtime.cuda.attend import attend

__all__ = ["BINARY", "UNARY", "compute", "evaluate"]

Tensor = torch.Tensor

UNARY: Mapping[str, Callable[[Tensor], Tensor]] = {
    "neg": torch.neg,
    "abs": torch.abs,
    "exp": torch.exp,
    "log": torch.log,
    "sqrt": torch.sqrt,
    "rsqrt": lambda x: 1.0 / torch.sqrt(x),
    "reciprocal": torch.reciprocal,
    "erf": torch.erf,
    "tanh": torch.tanh,
    "sigmoid": torch.sigmoid,
    "softplus": lambda x: torch.clamp(x, min=0.0) + torch.log1p(torch.exp(-torch.abs(x))),
    "sin": torch.sin,
    "cos": torch.cos,
    "floor": torch.floor,
    "ceil": torch.ceil,
    "rint": torch.round,
    "sign": torch.sign,
    "not": lambda x: (x == 0).float(),
    "row_sum": lambda x: x.sum(-1, keepdim=True),
    "row_mean": lambda x: x.mean(-1, keepdim=True),
    "row_max": lambda x: x.amax(-1, keepdim=True),
    "row_min": lambda x: x.amin(-1, keepdim=True),
}

BINARY: Mapping[str, Callable[[Tensor, Tensor], Tensor]] = {
    "add": torch.add,
    "sub": torch.sub,
    "mul": torch.mul,
    "div": torch.div,
    "pow": torch.pow,
    "max": torch.maximum,
    "min": torch.minimum,
    "eq": lambda a, b: (a == b).float(),
    "lt": lambda a, b: (a < b).float(),
    "le": lambda a, b: (a <= b).float(),
    "gt": lambda a, b: (a > b).float(),
    "ge": lambda a, b: (a >= b).float(),
    "and": lambda a, b: ((a != 0) & (b != 0)).float(),
    "or": lambda a, b: ((a != 0) | (b != 0)).float(),
    "xor": lambda a, b: ((a != 0) ^ (b != 0)).float(),
    "quantize": lambda x, scale: torch.clamp(torch.round(x / scale), -128.0, 127.0),
    "quantize_fp8": lambda x, scale: torch.clamp(x / scale, -448.0, 448.0).to(torch.float8_e4m3fn).float(),
}


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
            rank = inputs[0].dim()
            shaped = {name: _along_channels(array, rank) for name, array in constants.items()}
            results = evaluate(formula.epilogue, _conv(formula, inputs[0], weight), inputs[1:], shaped)
        case ConvTranspose() if weight is not None:
            sums = _conv_transpose(formula, inputs[0], weight)
            shaped = {name: _along_channels(array, sums.dim()) for name, array in constants.items()}
            results = evaluate(formula.epilogue, sums, inputs[1:], shaped)
        case Pool():
            pooled = _pool(formula, inputs[0])
            shaped = {name: _along_channels(array, pooled.dim()) for name, array in constants.items()}
            results = evaluate(formula.epilogue, pooled, inputs[1:], shaped)
        case Resize():
            resized = _resized(formula, inputs[0])
            shaped = {name: _along_channels(array, resized.dim()) for name, array in constants.items()}
            results = evaluate(formula.epilogue, resized, inputs[1:], shaped)
        case GroupNorm(channels=channels):
            shifted = formula.shift is not None
            normal = _group_norm(formula, inputs[0], inputs[1] if shifted else None)
            shaped = {
                name: _along_channels(_by_channel(array, channels), normal.dim())
                for name, array in constants.items()
            }
            results = evaluate(formula.epilogue, normal, inputs[1 + shifted :], shaped)
        case Concat(axis=axis):
            results = [_concat(inputs, axis)]
        case Attention():
            results = evaluate(formula.epilogue, attend(formula, inputs, constants), (), {})
        case _:
            raise InternalError(f"no reference for this formula: {type(formula).__name__}")
    return [_stored(result, dtype) for result, dtype in zip(results, outputs, strict=True)]


def evaluate(
    expression: Expression,
    accumulator: Tensor | None,
    tensors: Sequence[Tensor],
    constants: Mapping[str, Tensor],
    *,
    right: Tensor | None = None,
) -> list[Tensor]:
    """The outputs of an expression in float32, broadcast to its iteration shape (rows: last axis 1).

    Args:
        accumulator: float32; None when no operand asks for it.
        right: the second accumulator of a gate.
        tensors: of the tensor operands, in their order.
    """
    given = [*tensors, *constants.values()] if accumulator is None else [accumulator]
    device = given[0].device if given else torch.device("cpu")
    registers: list[Tensor] = []
    remaining = iter(tensors)
    lookups = expression.lookups
    for number, operand in enumerate(expression.operands):
        match operand.kind:
            case "accumulator" if accumulator is not None:
                registers.append(accumulator if number == 0 or right is None else right)
            case "tensor" if number in lookups.values():
                registers.append(next(remaining).long().unsqueeze(-1))
            case "tensor":
                registers.append(next(remaining).float())
            case "lookup":
                registers.append(_picked(constants[operand.name], registers[lookups[number]]))
            case "constant":
                registers.append(constants[operand.name].float())
            case _:
                registers.append(torch.full((), operand.value, dtype=torch.float32, device=device))
    shape = torch.broadcast_shapes(*(x.shape for x in registers))  # type: ignore[no-untyped-call]
    for instruction in expression.instructions:
        registers.append(_step(instruction, registers, shape, device))
    row_shape = (*shape[:-1], 1)
    return [
        registers[register].expand(row_shape if is_row else shape)
        for register, is_row in zip(expression.outputs, expression.row_outputs, strict=True)
    ]


def _picked(table: Tensor, index: Tensor) -> Tensor:
    """Rows of a table [V, C] by numbers [..., 1]: [..., C]; NaN for a row that is not there."""
    rows = torch.where(index < 0, index + len(table), index)
    is_there = (rows >= 0) & (rows < len(table))
    picked = table.index_select(0, torch.where(is_there, rows, 0).reshape(-1)).float()
    return torch.where(is_there, picked.reshape(*index.shape[:-1], table.shape[1]), float("nan"))


def _step(
    instruction: Instruction, registers: Sequence[Tensor], shape: torch.Size, device: torch.device
) -> Tensor:
    arguments = [registers[arg] for arg in instruction.args]
    if instruction.op == "const":
        return torch.full((), instruction.value, dtype=torch.float32, device=device)
    if instruction.op == "where":
        return torch.where(arguments[0] != 0, arguments[1], arguments[2])
    if instruction.op == "quantize_at":
        x, scale, zero = arguments
        return torch.clamp(torch.round(x / scale) + zero, -128.0, 127.0)
    if instruction.op in BINARY:
        return BINARY[instruction.op](*arguments)
    if instruction.op.startswith("row_"):
        arguments = [arguments[0].expand(shape)]
    return UNARY[instruction.op](arguments[0])


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
