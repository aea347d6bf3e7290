# SPDX-License-Identifier: Apache-2.0
"""Constants of attention masks, such as -1e9 and the least finite number, on the way to a Softmax.

They say "not this one". Taken as a value they set the range: a step of 1e9 / 127 leaves all scores one code.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import onnx_ir as ir

from quantrt.ir.edit import constant_of, is_operator
from quantrt.quantize.qdq.switches import MOVES
from quantrt.trouble.finding import HANDLED, TROUBLE, Finding
from quantrt.trouble.scene import Scene

__all__ = ["find_masks"]

LEAST = 1e3
"""Magnitude from which a constant says "never": scores of attention are some tens."""

FLOAT16_MAX = 65504.0

BETWEEN = (*MOVES, "Add", "Sub", "Mul", "Where", "Cast", "Min", "Max", "Clip", "Unsqueeze")

MASKING = ("Add", "Sub", "Mul", "Where", "Max", "Clip", "ConstantOfShape")

MAX_STEPS = 12


def find_masks(scene: Scene) -> Iterator[Finding]:
    """One finding for all Softmax nodes that the same constant reaches."""
    softmax: dict[tuple[str, float], tuple[ir.Node, set[str], list[str]]] = {}
    for node in scene.nodes:
        number = _least_constant(node)
        if number is None:
            continue
        ends, passed = _softmax_behind(node)
        if ends:
            key = (node.name or "", number)
            softmax[key] = (node, passed, ends)
    for (_, number), (node, passed, ends) in softmax.items():
        yield _mask(scene, node, number, passed, tuple(ends))


def _least_constant(node: ir.Node) -> float | None:
    """The constant that a node masks with; None without one."""
    if not is_operator(node, *MASKING):
        return None
    for value in node.inputs:
        array = constant_of(value)
        if array is not None and array.dtype.kind == "f" and array.size:
            least = float(array.min())
            if least <= -LEAST or np.isneginf(least):
                return least
    return None


def _softmax_behind(node: ir.Node) -> tuple[list[str], set[str]]:
    """The Softmax and Attention nodes that a result reaches, and the values on the way."""
    frontier, passed, ends = list(node.outputs), set[str](), list[str]()
    for _ in range(MAX_STEPS):
        following: list[ir.Value] = []
        for value in frontier:
            passed.add(value.name or "")
            for use in value.uses():
                if is_operator(use.node, "Softmax") or (is_operator(use.node, "Attention") and use.idx == 3):
                    ends.append(use.node.name or "")
                elif is_operator(use.node, *BETWEEN):
                    following += [one for one in use.node.outputs if one.name not in passed]
        frontier = following
    return list(dict.fromkeys(ends)), passed


def _mask(scene: Scene, node: ir.Node, number: float, passed: set[str], ends: tuple[str, ...]) -> Finding:
    coded = sorted(passed & scene.placement.values)
    many = f", before {len(ends)} Softmax nodes" if len(ends) > 1 else f", before '{ends[0]}'"
    figure = f"the constant {number:.3g}{many}"
    if np.isfinite(number):
        figure += f": a step of int8 would be {-number / 127:.2g}"
    effect = "as a value it sets the range, and all scores share one code"
    if scene.is_gpu and number < -FLOAT16_MAX:
        effect += "; in fp16 it is -inf, and a row that is masked wholly becomes NaN"
    if coded:
        advice = f"--exclude '{node.name}'; a mask of -100 does the same and harms nothing"
        return Finding(
            "attention mask", TROUBLE, (node.name or "", *ends), tuple(coded), figure, effect, advice
        )
    advice = "nothing to do here: scores stay float up to the Softmax; keep them so elsewhere"
    return Finding("attention mask", HANDLED, (node.name or "", *ends), (), figure, effect, advice)
