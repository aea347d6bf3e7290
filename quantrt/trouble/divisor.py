# SPDX-License-Identifier: Apache-2.0
"""The divisor of softmax-free attention: a sum over tokens by which the numerator is divided.

    y = (relu(q) (relu(k)^T v)) / (relu(q) sum(relu(k)) + eps)

Both sums spread over orders of magnitude. In 8 bits the small divisors become zero, and what is divided by
them infinite or noise (Shi et al., "Trio-ViT", 2024, section 3).
"""

from __future__ import annotations

from collections.abc import Iterator

import onnx_ir as ir

from quantrt.ir.edit import constant_of, is_operator
from quantrt.quantize.qdq.switches import MOVES
from quantrt.trouble.finding import HANDLED, TROUBLE, Finding
from quantrt.trouble.scene import Scene

__all__ = ["find_divisors"]

BETWEEN = (*MOVES, "Cast", "Clip", "Max", "Add")
"""Between a sum and the division: moves, and what keeps it from zero."""

SUMS = ("MatMul", "Einsum", "Gemm")

MAX_STEPS = 8

LEAST_FLOAT16 = 5.96e-8
"""The least number above zero."""


def find_divisors(scene: Scene) -> Iterator[Finding]:
    """A finding for every division by a sum over tokens."""
    for node in scene.nodes:
        if not is_operator(node, "Div") or any(constant_of(value) is not None for value in node.inputs):
            continue
        path = _path_to_sum(node.inputs[1])
        if path is not None and _path_to_sum(node.inputs[0]) is not None:
            yield _divisor(scene, node, path)


def _path_to_sum(value: ir.Value | None) -> tuple[ir.Node, ...] | None:
    """From a value up to the product that it is of; None for what is no sum over tokens."""
    path: list[ir.Node] = []
    for _ in range(MAX_STEPS):
        maker = None if value is None else value.producer()
        if maker is None:
            return None
        path.append(maker)
        if is_operator(maker, *SUMS) or _is_sum_of_products(maker):
            return tuple(path)
        if not is_operator(maker, *BETWEEN):
            return None
        varying = [item for item in maker.inputs if item is not None and constant_of(item) is None]
        if len(varying) != 1:
            return None
        value = varying[0]
    return None


def _is_sum_of_products(node: ir.Node) -> bool:
    source = node.inputs[0].producer() if is_operator(node, "ReduceSum") and node.inputs[0] else None
    return is_operator(source, "Mul")


def _divisor(scene: Scene, node: ir.Node, path: tuple[ir.Node, ...]) -> Finding:
    divisor = node.inputs[1].name or "" if node.inputs[1] is not None else ""
    product = path[-1].name or ""
    is_int8 = product in scene.int8_nodes or divisor in scene.placement.values
    names = (node.name or "", *(one.name or "" for one in path))
    effect = "in 8 bits small divisors become 0, and what is divided by them infinite or noise"
    if scene.is_gpu:
        effect += "; in fp16 the sums may overflow"
    if is_int8:
        advice = f"--exclude '{node.name}' --exclude '{product}'"
    else:
        advice = "nothing to do here: products outside softmax attention stay float; keep them so elsewhere"
    level = TROUBLE if is_int8 else HANDLED
    return Finding(
        "attention divisor", level, names, (divisor,), _figure(scene, divisor, path), effect, advice
    )


def _figure(scene: Scene, divisor: str, path: tuple[ir.Node, ...]) -> str:
    step = scene.int8_step(divisor)
    if step is not None:
        lo, hi = scene.extremes[divisor]
        return (
            f"divisors from {lo:.3g} to {hi:.3g}: the least is {lo / step:.2g} of a step of int8, {step:.2g}"
        )
    for node in path:
        for value in node.inputs:
            array = constant_of(value) if is_operator(node, "Add", "Max", "Clip") else None
            if array is not None and array.size == 1:
                eps = float(array.reshape(-1)[0])
                tail = ", which is 0 in fp16" if 0 < eps < LEAST_FLOAT16 / 2 else ""
                return f"kept from zero by {eps:.3g} only{tail}"
    return "nothing keeps it from zero"
