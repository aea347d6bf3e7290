# SPDX-License-Identifier: Apache-2.0
"""The layers of an engine on ONNX Runtime: the graph that it made of the model on this machine.

Sizes are those of one run, on zeros where no inputs are at hand. Where ONNX Runtime keeps images with
channels last, its graph has tensors of sizes N, H, W, C in row-major order, and so they are shown.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import onnx
from onnx import helper

from quantrt.errors import DataError
from quantrt.plan.onnxruntime.gates import JOINED_KEY
from quantrt.plan.plan import Plan
from quantrt.report.engine_layers.layer import (
    ROW_MAJOR,
    EngineLayer,
    TensorForm,
    bytes_moved,
    elements,
    size_bytes,
)
from quantrt.report.engine_layers.nodes import PlanNodes, default_shapes, nodes_by_layer
from quantrt.runtime.onnxruntime.watch import NodeEvent, optimized_graph, stable_name, watch_with_graph
from quantrt.runtime.unique_names import unique_names

__all__ = ["layers_ran", "onnxruntime_layers"]

log = logging.getLogger(__name__)

_PRECISIONS = {
    "uint8": "int8",
    "int8": "int8",
    "float32": "fp32",
    "float16": "fp16",
    "bfloat16": "bf16",
    "float64": "fp64",
}
_NUMPY_NAMES = {"float": "float32", "double": "float64", "tensor(string)": "string"}
"""Element types that ONNX and numpy name differently."""

_BLOCKED = "com.microsoft.nchwc"
_REORDERS = ("ReorderInput", "ReorderOutput")
"""Between rows and blocks of channels."""

_MOVES = ("Reshape", "Transpose")

_BLOCKED_NAME = "_nchwc"
"""Behind the name of the value that a node on blocks of channels makes, the node's own name."""

_CONVOLUTIONS = ("Conv", "FusedConv", "NhwcFusedConv", "QLinearConv", "ConvInteger")
_PRODUCTS = ("Gemm", "MatMul", "FusedGemm", "FusedMatMul", "QGemm", "QLinearMatMul", "MatMulInteger")
_DYNAMIC = ("DynamicQuantizeMatMul", "MatMulIntegerToFloat", "DynamicQuantizeLSTM")
_FLOAT_INSIDE = ("QLinearAdd", "QLinearMul", "QLinearSigmoid", "QLinearLeakyRelu", "QLinearSoftmax")
"""Operators on codes that compute in floats."""

_ATTRIBUTES = (
    "kernel_shape", "strides", "pads", "dilations", "group", "axis", "activation", "transA", "transB", "perm"
)  # fmt: skip


def onnxruntime_layers(plan: Plan, shapes: Mapping[str, tuple[int, ...]] | None) -> tuple[EngineLayer, ...]:
    """The layers in the order in which they run.

    Args:
        shapes: of the inputs; None: a free batch is 1, and where other sizes are free none is known.

    Raises:
        DataError: the model cannot run `shapes`.
    """
    known = default_shapes(plan) if shapes is None else shapes
    return layers_ran(plan, *_run_of(plan, known, is_asked_for=shapes is not None), known)


def layers_ran(
    plan: Plan, made: onnx.ModelProto, events: Sequence[NodeEvent], known: Mapping[str, tuple[int, ...]]
) -> tuple[EngineLayer, ...]:
    """The same of what was watched already.

    Args:
        made: the graph that ONNX Runtime made.
        events: of its nodes in a run; none where there was none.
        known: shapes of the inputs of that run.
    """
    graph = made.graph
    ran = dict(zip(unique_names([event.name for event in events]), events, strict=True))
    named = _named(graph, ran)
    order = [*(name for name in ran if name in named), *(name for name in named if name not in ran)]
    nodes = _nodes_by_layer(plan, {name: named[name] for name in order})
    plan_nodes = PlanNodes.of(plan)
    forms = _forms(graph, {name: (named[name], ran.get(name)) for name in order})
    for name in known.keys() & forms.keys() if events else ():
        forms[name] = replace(forms[name], dims=tuple(known[name]))
    constants = {tensor.name: tensor for tensor in graph.initializer}
    found = ((name, nodes[name]) for name in order)
    return tuple(_layer(name, named[name], plan_nodes, forms, constants, nodes=own) for name, own in found)


def _named(graph: onnx.GraphProto, ran: Mapping[str, NodeEvent]) -> dict[str, onnx.NodeProto]:
    """The nodes by their names; one without gets that under which the profile has it, by its operator."""
    own = [stable_name(node.name, node.op_type) for node in graph.node]
    given = set(own)
    waiting: dict[str, list[str]] = {}
    for name, event in ran.items():
        if name not in given:
            waiting.setdefault(event.op_type, []).append(name)
    names = []
    for name, node in zip(own, graph.node, strict=True):
        others = waiting.get(node.op_type, [])
        names.append(name or (others.pop(0) if others else node.op_type))
    return dict(zip(unique_names(names), graph.node, strict=True))


def _run_of(
    plan: Plan, known: Mapping[str, tuple[int, ...]], *, is_asked_for: bool
) -> tuple[onnx.ModelProto, Sequence[NodeEvent]]:
    """The graph, and one run on zeros; none where a shape is not known, or what is made up does not run."""
    if any(spec.name not in known or spec.dtype == "string" for spec in plan.inputs):
        return optimized_graph(plan.model, plan.options), ()
    zeros = {spec.name: np.zeros(known[spec.name], spec.dtype) for spec in plan.inputs}
    try:
        graph, found = watch_with_graph(plan.model, plan.options, zeros, runs=1, warmup_runs=0)
    except DataError as error:
        if is_asked_for:
            raise
        log.warning("sizes of layers are not known: %s", error)
        return optimized_graph(plan.model, plan.options), ()
    return graph, found[0][1]


def _nodes_by_layer(plan: Plan, named: Mapping[str, onnx.NodeProto]) -> dict[str, tuple[str, ...]]:
    """Nodes of the canonical model that each layer computes.

    A layer computes what lies between the values that it reads and those that it makes, where these are
    still values of the engine's graph; otherwise the node whose name it has.
    """
    source = onnx.ModelProto()
    source.ParseFromString(plan.model.graph)
    rows = {node.name: node for node in source.graph.node}
    maker = {value: node.name for node in source.graph.node for value in node.output if value}
    told = {name: name for name in named if name in rows}
    plan_nodes = PlanNodes.of(plan)
    stems = {node: name for name in named if (node := plan_nodes.named(name)) is not None and node in rows}
    told = {**stems, **told}
    values = {name: name.removesuffix(_BLOCKED_NAME) for name in named if name.endswith(_BLOCKED_NAME)}
    told.update((maker[value], name) for name, value in values.items() if value in maker)
    for name, node in named.items():
        if node.op_type in _REORDERS:
            continue  # it makes a value of the source's name, which another layer computed
        if node.op_type in _MOVES and name in rows and plan_nodes.named(name) is None:
            continue  # put between layers: it is no node of the model, and computes none
        stop = set(node.input)
        waiting = [maker[value] for value in (*node.output, values.get(name, "")) if value in maker]
        while waiting:
            found = waiting.pop()
            if told.setdefault(found, name) != name:
                continue
            if name in values and rows[found].op_type == node.op_type:
                continue  # what it reads has names of the library's own, which say not where to stop
            before = [maker[value] for value in rows[found].input if value in maker and value not in stop]
            waiting += [other for other in before if other not in told]
    joined = {other: node.name for node in source.graph.node for other in _joined(node)}
    told = {**{other: told[name] for other, name in joined.items() if name in told}, **told}
    makers = {
        node.name: [maker[value] for value in node.input if value in maker] for node in source.graph.node
    }
    return nodes_by_layer(list(named), told, makers, plan_nodes)


def _joined(node: onnx.NodeProto) -> list[str]:
    """Nodes of the model that are computed in a node of another name."""
    found = (entry.value for entry in node.metadata_props if entry.key == JOINED_KEY)
    return [name for names in found for name in names.split("\n")]


def _forms(
    graph: onnx.GraphProto, rows: Mapping[str, tuple[onnx.NodeProto, NodeEvent | None]]
) -> dict[str, TensorForm]:
    """Every value of the graph; its sizes where they are known."""
    found = {}
    for value in graph.input:
        kind = value.type.tensor_type
        dims = tuple(dim.dim_value or dim.dim_param or "?" for dim in kind.shape.dim)
        found[value.name] = _form(value.name, dims, _numpy_name(kind.elem_type))
    for value in (*graph.value_info, *graph.output):
        if value.type.HasField("tensor_type"):
            found[value.name] = _form(value.name, None, _numpy_name(value.type.tensor_type.elem_type))
    for node, event in rows.values():
        names = [name for name in node.output if name]
        for name in names:
            found.setdefault(name, _form(name, None, ""))
        if event is not None and len(event.outputs) == len(names):
            for name, (kind, shape) in zip(names, event.outputs, strict=True):
                found[name] = _form(name, shape, _NUMPY_NAMES.get(kind, kind))
    return found


def _form(name: str, dims: Sequence[int | str] | None, dtype: str) -> TensorForm:
    return TensorForm(name=name, dims=None if dims is None else tuple(dims), dtype=dtype, layout=ROW_MAJOR)


def _numpy_name(kind: int) -> str:
    if kind == onnx.TensorProto.STRING:
        return "string"
    return str(helper.tensor_dtype_to_np_dtype(kind)) if kind else ""


def _layer(
    name: str,
    node: onnx.NodeProto,
    plan: PlanNodes,
    forms: Mapping[str, TensorForm],
    constants: Mapping[str, onnx.TensorProto],
    *,
    nodes: tuple[str, ...],
) -> EngineLayer:
    inputs = tuple(forms[value] for value in node.input if value in forms and value not in constants)
    outputs = tuple(forms[value] for value in node.output if value)
    weights: dict[str, int] = {}
    for tensor in (constants[value] for value in node.input if value in constants):
        dtype = _numpy_name(tensor.data_type)
        weights[dtype] = weights.get(dtype, 0) + (size_bytes(tuple(tensor.dims), dtype) or 0)
    precision = _PRECISIONS.get(inputs[0].dtype if inputs else "", "")
    computes_in = "fp32" if node.op_type in _FLOAT_INSIDE else precision
    if node.op_type in _DYNAMIC:
        computes_in = "int8"
    where = "blocked by channels" if node.domain == _BLOCKED else ""
    return EngineLayer(
        name=name,
        kind=node.op_type,
        nodes=nodes,
        sources=plan.sources(nodes),
        precision=precision,
        computes_in=computes_in,
        reason=plan.reason(nodes, "int8" if precision == "int8" else computes_in) or _why_there(node),
        tactic=f"onnxruntime: {node.op_type}{' (' + where + ')' if where else ''}",
        bytes_moved=bytes_moved((*inputs, *outputs), weights),
        operations=_operations(node, inputs, outputs, constants),
        inputs=inputs,
        outputs=outputs,
        weights=weights,
        attributes=_attributes(node, constants),
    )


def _why_there(node: onnx.NodeProto) -> str:
    """What a layer that no node asked for is there for."""
    if node.op_type in ("QuantizeLinear", "DequantizeLinear"):
        return "a conversion between floats and codes"
    if node.op_type in ("Transpose", "ReorderInput", "ReorderOutput"):
        return "a conversion of layout that ONNX Runtime put in"
    if node.op_type == "Reshape":
        return "a conversion of layout for the kernels beside it"
    return "a conversion of type" if node.op_type == "Cast" else ""


def _operations(
    node: onnx.NodeProto,
    inputs: Sequence[TensorForm],
    outputs: Sequence[TensorForm],
    constants: Mapping[str, onnx.TensorProto],
) -> int | None:
    """Two for every multiply-add; None for an operator whose products are not known."""
    count = elements(outputs[0].dims) if outputs else None
    if count is None or not inputs or inputs[0].dims is None:
        return None
    if node.op_type in _CONVOLUTIONS:
        weight = _window(node, constants)
        return None if weight is None else 2 * count * math.prod(weight.dims[1:])
    if node.op_type in (*_PRODUCTS, *_DYNAMIC[:2]):
        is_transposed = any(a.name == "transA" and a.i for a in node.attribute)
        terms = inputs[0].dims[-2 if is_transposed else -1] if inputs[0].dims else None
        return 2 * count * terms if isinstance(terms, int) else None
    return None


def _attributes(node: onnx.NodeProto, constants: Mapping[str, onnx.TensorProto]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    weight = _window(node, constants) if node.op_type in _CONVOLUTIONS else None
    if weight is not None:  # what ONNX has where an attribute is absent
        taps = list(weight.dims[2:])
        found |= {"kernel_shape": taps, "strides": [1] * len(taps), "dilations": [1] * len(taps), "group": 1}
    for attribute in node.attribute:
        if attribute.name in _ATTRIBUTES:
            value = helper.get_attribute_value(attribute)
            found[attribute.name] = value.decode() if isinstance(value, bytes) else _plain(value)
    if any(attribute.name == "channels_last" and attribute.i for attribute in node.attribute):
        found["channels_last"] = True
    return found


def _window(node: onnx.NodeProto, constants: Mapping[str, onnx.TensorProto]) -> onnx.TensorProto | None:
    """The weight of a convolution; None where it is no constant."""
    return next((constants[v] for v in node.input if v in constants and len(constants[v].dims) > 2), None)


def _plain(value: Any) -> Any:
    return value if isinstance(value, str | int | float) else list(value)
