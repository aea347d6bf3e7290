# SPDX-License-Identifier: Apache-2.0
"""An OpenVINO engine and its float model -> the quantized model that the engine was made of.

The engine's graph keeps the names of what `quantrt.quantize.qdq.write` wrote: which edges are read through a
DequantizeLinear, and the constants with scales, zero points, codes and corrected biases.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx_ir as ir

from quantrt.dtypes import INT8, UINT8, DType
from quantrt.errors import ModelError
from quantrt.ir.edit import constant_of, is_operator, set_constant_input
from quantrt.model.model import Model
from quantrt.plan.openvino.held import read_openvino
from quantrt.plan.plan import LibraryModel
from quantrt.quantize.algorithms.bias_correction import set_biases
from quantrt.quantize.algorithms.smoothing import MULTIPLIED
from quantrt.quantize.placement.operands import weight_axis
from quantrt.quantize.quantized_model import Placement, QuantizedModel, Use
from quantrt.quantize.scales.qparams import QParams, QuantizedTensor
from quantrt.quantize.targets.openvino import OPENVINO

__all__ = ["from_openvino_engine"]

BIAS = "_corrected_bias"

RESHAPES = ("Reshape", "Transpose", "Unsqueeze", "Squeeze", "Convert")

_TYPES: Mapping[str, DType] = {"int8": INT8, "uint8": UINT8}


def from_openvino_engine(model: Model, engine: LibraryModel) -> QuantizedModel:
    """The quantized model behind an int8 engine.

    Args:
        model: the float model it was built from.

    Raises:
        ModelError: what the engine's graph shows is not of this model; names what is missing.
    """
    found = _read(engine)
    uses: dict[Use, str] = {}
    activations: dict[str, QParams] = {}
    weights: dict[Use, QuantizedTensor] = {}
    for node in model.graph.graph:
        sources = found.sources_of(node)
        for index, value in enumerate(node.inputs):
            name = (value.name if value is not None else None) or ""
            if f"{name}_dequantize" not in sources:
                continue
            use = (node.name or "", index)
            if constant_of(value) is None:
                uses[use] = name
                activations[name] = found.grid(name, None)
            else:
                weights[use] = found.weight(node, index, name)
    placement = Placement(
        values=frozenset(activations),
        uses=uses,
        weights={use: tensor.qparams.axis for use, tensor in weights.items()},
    )
    graph = set_biases(model.graph, found.biases())
    _take_constants(graph, found, weights)
    return QuantizedModel(model, graph, OPENVINO, placement, activations, weights)


def _take_constants(graph: ir.Model, engine: _Engine, weights: Collection[Use]) -> None:
    """Float weights and biases as the engine has them: those of equalized channels are not the model's."""
    for node in graph.graph:
        if not (_is_smoothed(node) or is_operator(node, "Conv", "Gemm", "LayerNormalization")):
            continue
        for index in range(1, len(node.inputs)):
            value = node.inputs[index]
            array, name = constant_of(value), (value.name if value is not None else None) or ""
            if array is None or (node.name or "", index) in weights or name not in engine.constants:
                continue
            found = engine.constant(name)
            if found.size == array.size and not np.array_equal(found.reshape(array.shape), array):
                set_constant_input(graph, node, index, found.reshape(array.shape).astype(array.dtype), name)


def _is_smoothed(node: ir.Node) -> bool:
    """A Mul that smooths, or a product that reads what it makes: float where precisions are mixed."""
    names = (node.name, *(value.name for value in node.inputs[:1] if value is not None))
    return is_operator(node, "Mul", "MatMul") and any((name or "").endswith(MULTIPLIED) for name in names)


@dataclass(frozen=True)
class _Engine:
    """What an OpenVINO graph shows.

    Attributes:
        sources: for each ONNX node, the names of what its operators read.
        constants: the operators that hold constants, by name.
        graph: keeps them alive.
    """

    sources: Mapping[str, frozenset[str]]
    constants: Mapping[str, Any]
    graph: Any

    def sources_of(self, node: ir.Node) -> frozenset[str]:
        """Names of what an ONNX node reads; one that makes a model output is called like that output."""
        names = [node.name, *(value.name for value in node.outputs)]
        return frozenset().union(*(self.sources.get(name or "", frozenset()) for name in names))

    def grid(self, name: str, axis: int | None) -> QParams:
        """Of the value or weight called `name`."""
        scale = self.constant(f"{name}_scale").astype(np.float32)
        zero_point = self.constant(f"{name}_zero_point")
        dtype = _TYPES.get(zero_point.dtype.name)
        if dtype is None:
            raise ModelError(f"'{name}' is quantized to a type that is not known", got=zero_point.dtype.name)
        low, high = int(dtype.qmin or 0), int(dtype.qmax or 0)
        return QParams(scale, zero_point.astype(np.int32), dtype, axis if scale.ndim else None, low, high)

    def weight(self, node: ir.Node, index: int, name: str) -> QuantizedTensor:
        """The codes of a node's weight."""
        rule = OPENVINO.rule(node.op_type)
        axis = None if rule is None else weight_axis(node, rule)
        codes, float_weight = self.constant(f"{name}_quantized"), constant_of(node.inputs[index])
        if float_weight is None or codes.shape != float_weight.shape:
            raise ModelError(f"the weight of '{node.name}' in the engine is not of this model")
        return QuantizedTensor(codes, self.grid(name, axis))

    def biases(self) -> dict[str, np.ndarray]:
        """Corrected biases by the name of their layer."""
        names = [name for name in self.constants if name.endswith(BIAS)]
        return {name.removesuffix(BIAS): self.constant(name).astype(np.float32) for name in names}

    def constant(self, name: str) -> np.ndarray:
        """One constant; fails by its name."""
        if name not in self.constants:
            raise ModelError(
                f"the engine has no constant '{name}': its quantization cannot be read from it",
                hint="`quantrt build MODEL.onnx ... -o ENGINE.qrt` again, with this version",
            )
        return np.array(self.constants[name].data)


def _sources(port: Any) -> Iterator[str]:
    """Names of what an operator reads; the importer reshapes the weights of some."""
    node = port.get_source_output().get_node()
    yield node.get_friendly_name()
    while node.get_type_name() in RESHAPES:
        node = node.input(0).get_source_output().get_node()
        yield node.get_friendly_name()


def _read(engine: LibraryModel) -> _Engine:
    """Names are those of nodes: the importer splits some nodes in two, NAME and NAME/WithoutBiases."""
    sources: dict[str, frozenset[str]] = {}
    constants: dict[str, Any] = {}
    graph = read_openvino(engine)
    for operator in graph.get_ordered_ops():
        name = operator.get_friendly_name()
        if operator.get_type_name() == "Constant":
            constants[name] = operator
            continue
        read = {source for port in operator.inputs() for source in _sources(port)}
        owner = name.removesuffix("/WithoutBiases")
        sources[owner] = sources.get(owner, frozenset()) | read
    return _Engine(sources, constants, graph)
