# SPDX-License-Identifier: Apache-2.0
"""How long a tactic should take, by the roofline, for a device that is not here.

    time = launches + max(operations / peak, bytes / bandwidth)

Operations and bytes are those of the workload, whichever tactic computes it, with what a tactic moves on top:
its workspace, and for the reference the intermediate values of every instruction. Estimates order sources;
the tactics of one source come in their family's own order.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from quantrt.dtypes import FP8
from quantrt.gpu import LAUNCH_US, PEAK_RATIO, GpuFacts
from quantrt.regions.expression import Expression
from quantrt.regions.formula_expression import expression_of
from quantrt.regions.region import (
    Attention,
    Concat,
    Conv,
    ConvTranspose,
    Gemm,
    LinearAttention,
    Pool,
    PooledConv,
    Resize,
    ResizedConv,
    Rows,
)
from quantrt.tactics.cuda.padding.live_rows import without_padding
from quantrt.tactics.cuda.tactic import DEQUANTIZED, Tactic, Workload

__all__ = ["Work", "estimate_us", "work_of"]

FLOAT64_RATIO = 0.5
"""The reference multiplies in float64: half the float32 peak on the boards that are good at it."""


@dataclass(frozen=True)
class Work:
    """What has to be done for one workload.

    Attributes:
        products: multiply-adds.
        moved_bytes: inputs, weights and outputs, each once.
        elements: of the largest tensor that the expression runs over.
    """

    products: int
    moved_bytes: int
    elements: int


def work_of(workload: Workload) -> Work:
    """The least work that any tactic has to do."""
    workload = without_padding(workload)
    shapes = [facts.shape for facts in workload.inputs]
    largest = max((math.prod(shape) for shape in shapes), default=0)
    read = sum(math.prod(facts.shape) * np.dtype(facts.dtype).itemsize for facts in workload.inputs)
    weight = workload.weight
    products, elements = 0, largest
    match workload.formula:
        case Gemm(is_transposed=is_transposed, is_gated=is_gated) if weight is not None:
            columns = math.prod(shapes[0][:-1]) * weight.shape[0 if is_transposed else 1]
            elements = columns // 2 if is_gated else columns
            products = columns * shapes[0][-1]
        case Conv() as formula if weight is not None:
            elements = math.prod((shapes[0][0], weight.shape[0], *_extents(formula, shapes[0], weight.shape)))
            products = elements * math.prod(weight.shape[1:])
        case PooledConv(formula, pool) if weight is not None:
            stored = (shapes[0][0], weight.shape[0], *_extents(formula, shapes[0], weight.shape))
            elements = math.prod(pool.output_shape(stored))
            products = math.prod(stored) * math.prod(weight.shape[1:])
        case ResizedConv(resize, formula) if weight is not None:
            image = (*shapes[0][:2], *resize.output_size(shapes[0][2:]))
            elements = math.prod((image[0], weight.shape[0], *_extents(formula, image, weight.shape)))
            products = elements * math.prod(weight.shape[1:])
        case ConvTranspose() as formula if weight is not None:
            channels = weight.shape[1] * formula.groups
            elements = math.prod((shapes[0][0], channels, *formula.output_size(shapes[0][2:])))
            products = math.prod(shapes[0]) * math.prod(weight.shape[1:])
        case Attention(is_transposed=is_transposed):
            (B, H, S, D), v = shapes[0], shapes[2]
            elements = B * H * S * v[3]
            products = B * H * S * v[2] * (D + v[3])
        case LinearAttention():
            (B, H, S, D), (T, E) = shapes[0], shapes[2][2:]
            elements = B * H * S * E
            products = B * H * (S + T) * D * (E + 1)
        case Resize() as formula:
            elements = math.prod((*shapes[0][:2], *formula.output_size(shapes[0][2:])))
        case Pool() as formula:
            elements = math.prod(formula.output_shape(shapes[0]))
        case Concat():
            elements = sum(math.prod(shape) for shape in shapes)
        case Rows(expression=expression):
            elements = math.prod(np.broadcast_shapes(*_walked(expression, workload))) if shapes else 0
        case _:
            pass
    written = sum(elements * np.dtype(dtype).itemsize for dtype in workload.outputs)
    return Work(products, read + written + _held_bytes(workload), elements)


def _walked(expression: Expression, workload: Workload) -> list[tuple[int, ...]]:
    """Shapes of an expression's tensors; of numbers of rows, that of the rows themselves."""
    tensors = (number for number, x in enumerate(expression.operands) if x.kind == "tensor")
    shapes = {number: facts.shape for number, facts in zip(tensors, workload.inputs, strict=True)}
    rows = []
    for table, index in expression.lookups.items():
        width = workload.constants[expression.operands[table].name].shape[-1]
        rows.append((*shapes[index], width))
    picked = set(expression.lookups.values())
    return rows + [shape for number, shape in shapes.items() if number not in picked]


def _held_bytes(workload: Workload) -> int:
    """Of the weight as a kernel reads it: floats in the type of what they are multiplied by."""
    weight, groups = workload.weight, workload.groups
    if weight is None:
        return 0
    if groups is not None:
        return groups.nbytes
    if not np.issubdtype(weight.dtype, np.floating):
        return weight.nbytes
    return weight.size * np.dtype(workload.inputs[0].dtype).itemsize


def estimate_us(workload: Workload, tactic: Tactic, gpu: GpuFacts) -> float:
    """Microseconds that `tactic` should take on `gpu`; an estimate, not a measurement."""
    work = work_of(workload)
    is_reference = any(draft.runner == "formula" for draft in tactic.drafts)
    instructions = _instructions(workload)
    launches = len(tactic.drafts) + (instructions if is_reference else 0)
    moved = work.moved_bytes + 2 * tactic.workspace_bytes
    if is_reference:
        moved += (instructions + 1) * 3 * 4 * work.elements  # two float32 read and one written for each
    operations_us = 2 * work.products / (_peak_tflops(workload, tactic, gpu, is_reference) * PEAK_RATIO * 1e6)
    memory_us = moved / gpu.memory_bytes_per_us
    return launches * LAUNCH_US + max(operations_us, memory_us)


def _peak_tflops(workload: Workload, tactic: Tactic, gpu: GpuFacts, is_reference: bool) -> float:
    if is_reference:
        return gpu.fp32_tflops * FLOAT64_RATIO
    kind = workload.inputs[0].dtype if workload.inputs else "float32"
    if kind == "float32":
        return gpu.fp32_tflops
    rates = {} if DEQUANTIZED in tactic.name.split() else {"int8": gpu.int8_tops, FP8.name: gpu.fp8_tflops}
    return rates.get(kind, 0.0) or gpu.fp16_tflops


def _instructions(workload: Workload) -> int:
    expression = expression_of(workload.formula)
    if expression is not None:
        return _count(expression)
    return 1 if isinstance(workload.formula, Concat) else 4  # scale, softmax and two products


def _count(expression: Expression) -> int:
    return len(expression.instructions) + 1


def _extents(formula: Conv, x: tuple[int, ...], weight: tuple[int, ...]) -> list[int]:
    """The output's spatial sizes."""
    rank = len(formula.strides)
    return [
        max(0, (size + begin + end - dilation * (taps - 1) - 1) // stride + 1)
        for size, begin, end, dilation, taps, stride in zip(
            x[2:],
            formula.pads[:rank],
            formula.pads[rank:],
            formula.dilations,
            weight[2:],
            formula.strides,
            strict=True,
        )
    ]
