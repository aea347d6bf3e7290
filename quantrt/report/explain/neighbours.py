# SPDX-License-Identifier: Apache-2.0
"""What layers do to each other: conversions between them, and fusions that did not happen."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from quantrt.plan.plan import Plan
from quantrt.plan.program_json import program_from_model
from quantrt.report.engine_layers.layer import EngineLayer, is_conversion

__all__ = ["Conversion", "conversions", "missed_fusions"]

_FUSIBLE = ("Relu", "Clip", "Add", "Sigmoid", "HardSwish", "Gelu", "LeakyRelu", "HardSigmoid")
"""Operators that libraries compute inside the product before them."""

_PRODUCTS = ("Conv", "Gemm", "MatMul", "ConvTranspose")


@dataclass(frozen=True)
class Conversion:
    """A layer that makes another form of a tensor, and the layers on both sides of it.

    Attributes:
        change: such as "uint8 -> float32", or of layouts where the type stays.
        maker: of the tensor; the input's name where the model's caller gives it.
        readers: of the result; empty where it is an output of the model.
    """

    layer: EngineLayer
    change: str
    maker: str
    readers: tuple[str, ...]


def conversions(layers: Sequence[EngineLayer]) -> tuple[Conversion, ...]:
    """All of them, in the order in which they run."""
    makers = {form.name: layer for layer in layers for form in layer.outputs}
    readers: dict[str, list[str]] = {}
    for layer in layers:
        for form in dict.fromkeys(layer.inputs):
            readers.setdefault(form.name, []).append(layer.name)
    found = []
    for layer in layers:
        if is_conversion(layer):
            read, made = layer.inputs[0], layer.outputs[0]
            before, after = (
                (read.dtype, made.dtype) if read.dtype != made.dtype else (read.layout, made.layout)
            )
            maker = makers[read.name].name if read.name in makers else read.name
            change = f"{before} -> {after}" if before != after else f"another layout ({layer.kind})"
            found.append(Conversion(layer, change, maker, tuple(readers.get(made.name, ()))))
    return tuple(found)


def missed_fusions(plan: Plan, layers: Sequence[EngineLayer]) -> dict[str, tuple[str, ...]]:
    """By layer, fusions that did not happen at it, with the reason as far as it is known."""
    if plan.model.library == "cuda":
        return _mismatches(plan, layers)
    return _standing_alone(plan, layers)


def _mismatches(plan: Plan, layers: Sequence[EngineLayer]) -> dict[str, tuple[str, ...]]:
    homes = {node: layer.name for layer in layers for node in layer.nodes}
    found: dict[str, list[str]] = {}
    for pattern, reason, node in program_from_model(plan.model).notes.get("mismatches", ()):
        if node in homes:
            found.setdefault(homes[node], []).append(f"{pattern} at '{node}': {reason}")
    return {name: tuple(rows) for name, rows in found.items()}


def _standing_alone(plan: Plan, layers: Sequence[EngineLayer]) -> dict[str, tuple[str, ...]]:
    """Elementwise layers behind a product; what a library's reason was it does not say."""
    types = {layer.name: layer.op_type for layer in plan.layers}
    makers = {form.name: layer for layer in layers for form in layer.outputs}
    readers: dict[str, int] = {}
    for layer in layers:
        for form in dict.fromkeys(layer.inputs):
            readers[form.name] = readers.get(form.name, 0) + 1
    found: dict[str, tuple[str, ...]] = {}
    for layer in layers:
        operators = {types[node] for node in layer.nodes if node in types}
        if not operators or not operators <= set(_FUSIBLE):
            continue
        reason = next(
            (text for form in layer.inputs if (text := _why_alone(form.name, makers, readers, types))), ""
        )
        if reason:
            found[layer.name] = (reason,)
    return found


def _why_alone(
    value: str, makers: Mapping[str, EngineLayer], readers: Mapping[str, int], types: Mapping[str, str]
) -> str:
    maker = makers.get(value)
    if maker is None or not any(types.get(node) in _PRODUCTS for node in maker.nodes):
        return ""
    if readers.get(value, 0) > 1:
        return f"not fused into '{maker.name}': another layer reads its result too"
    return f"not fused into '{maker.name}': the library does not tell why"
