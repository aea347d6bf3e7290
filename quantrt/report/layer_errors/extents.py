# SPDX-License-Identifier: Apache-2.0
"""Where a layer ends: the tensor at which float, fake-quantized and compiled model are compared.

A library computes an activation, or a bias, inside the kernel of the product before it, and QuantRT's own
kernels much more. Looking at what never leaves a kernel would split the kernel, and show another engine.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from quantrt.ir.edit import constant_of, is_operator, only_consumer
from quantrt.plan.program import codes_of
from quantrt.quantize.qdq.switches import OUTPUT, Layer

__all__ = ["ACTIVATIONS", "EngineTap", "Extent", "find_extents"]

ACTIVATIONS = ("Relu", "Clip")
LONGEST = 16
"""Nodes after a layer's own that are looked at for a tensor that the engine keeps."""


@dataclass(frozen=True)
class EngineTap:
    """A tensor of the engine.

    Attributes:
        name: in the engine.
        grid: scale and zero point, where it holds codes.
    """

    name: str
    grid: tuple[np.ndarray, np.ndarray] | None = None

    def floats(self, array: np.ndarray) -> np.ndarray:
        """The values that it stands for."""
        if self.grid is None:
            return array
        scale, zero_point = self.grid
        return np.asarray((array.astype(np.int64) - zero_point).astype(np.float32) * scale, np.float32)


@dataclass(frozen=True)
class Extent:
    """A layer with its end.

    Attributes:
        nodes: the layer's node and those behind it up to the end; none for a rounded output.
        output: the tensor that is compared.
        rounded: that tensor after rounding, where the engine has it as codes.
        engine: the same in the engine; None where it stays inside a kernel.
    """

    layer: Layer
    nodes: tuple[str, ...]
    output: str
    rounded: str | None
    engine: EngineTap | None


def find_extents(
    fake: ir.Model, layers: Sequence[Layer], library: str, tensors: Collection[str]
) -> tuple[Extent, ...]:
    """The end of every layer.

    Args:
        fake: the fake-quantized graph.
        library: of the engine: "onnxruntime", "openvino" or "cuda".
        tensors: names of what the engine can show.
    """
    nodes = {node.name or "": node for node in fake.graph}
    names = {layer.name for layer in layers if layer.op_type != OUTPUT}
    kept = frozenset(tensors)
    return tuple(
        _output_extent(layer, kept)
        if layer.op_type == OUTPUT
        else _extent(layer, _followers(nodes[layer.name], names), library, kept)
        for layer in layers
    )


def _output_extent(layer: Layer, tensors: Collection[str]) -> Extent:
    tap = EngineTap(layer.name) if layer.name in tensors else None
    return Extent(layer, (), layer.name, None, tap)


def _extent(layer: Layer, chain: list[ir.Node], library: str, tensors: Collection[str]) -> Extent:
    fused = _fused_length(chain)
    lengths = range(1, len(chain) + 1) if library == "cuda" else (fused,)
    for length in lengths:
        value = chain[length - 1].outputs[0]
        tap, rounded = _tap(value, library, tensors)
        if tap is not None:
            return Extent(layer, _names(chain[:length]), value.name or "", rounded, tap)
    return Extent(layer, _names(chain[:fused]), chain[fused - 1].outputs[0].name or "", None, None)


def _tap(value: ir.Value, library: str, tensors: Collection[str]) -> tuple[EngineTap | None, str | None]:
    """The engine's form of a value, and the fake-quantized graph's name of the same."""
    name = value.name or ""
    quantizer = next(
        (node for node, i in value.uses() if i == 0 and is_operator(node, "QuantizeLinear")), None
    )
    codes = None if quantizer is None else _codes(quantizer, codes_of(name) if library == "cuda" else None)
    if library == "onnxruntime" and codes is not None and codes[0].name in tensors:
        return codes
    if name in tensors:
        return EngineTap(name), None
    if library == "cuda" and codes is not None and codes[0].name in tensors:
        return codes
    return None, None


def _codes(quantizer: ir.Node, name: str | None) -> tuple[EngineTap, str] | None:
    """The codes that a QuantizeLinear makes, under their own or another name, and their values' name."""
    scale, zero_point = constant_of(quantizer.inputs[1]), None
    if len(quantizer.inputs) > 2:
        zero_point = constant_of(quantizer.inputs[2])
    output = quantizer.outputs[0]
    readers = [node for node, _ in output.uses() if is_operator(node, "DequantizeLinear")]
    if scale is None or scale.size != 1 or not readers:
        return None
    zero = np.zeros((), np.int64) if zero_point is None else zero_point.astype(np.int64)
    tap = EngineTap(name or output.name or "", (scale.reshape(()), zero.reshape(())))
    return tap, readers[0].outputs[0].name or ""


def _followers(node: ir.Node, layers: Collection[str]) -> list[ir.Node]:
    """A node and those after it, as long as each is the only reader of the one before."""
    chain = [node]
    while len(chain) <= LONGEST:
        value = chain[-1].outputs[0]
        follower = only_consumer(value)
        if follower is None or follower.graph is not node.graph or (follower.name or "") in layers:
            break
        if is_operator(follower, "QuantizeLinear", "DequantizeLinear") or len(follower.outputs) != 1:
            break
        chain.append(follower)
    return chain


def _fused_length(chain: Sequence[ir.Node]) -> int:
    """How many of the nodes any library computes in one kernel: a product, its bias, its activation."""
    length = 1
    for node in chain[1:]:
        is_bias = node.op_type == "Add" and any(constant_of(value) is not None for value in node.inputs)
        if not is_operator(node, *ACTIVATIONS) and not is_bias:
            break
        length += 1
    return length


def _names(nodes: Sequence[ir.Node]) -> tuple[str, ...]:
    return tuple(node.name or "" for node in nodes)
