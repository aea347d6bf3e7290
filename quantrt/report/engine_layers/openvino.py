# SPDX-License-Identifier: Apache-2.0
"""The layers of an engine on OpenVINO: what the plugin made of the model on this machine."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence, Set
from typing import Any

import openvino

from quantrt.plan.plan import Plan
from quantrt.report.engine_layers.layer import (
    CHANNELS_LAST,
    ROW_MAJOR,
    EngineLayer,
    TensorForm,
    bytes_moved,
    elements,
    size_bytes,
)
from quantrt.report.engine_layers.nodes import PlanNodes, default_shapes, nodes_by_layer
from quantrt.runtime.layer_times import open_watched
from quantrt.runtime.openvino.watch import WatchedOpenVino, constant_names, layer_type, layers_of, text_of

__all__ = ["layers_compiled", "openvino_layers"]

_PRECISIONS = {"u8": "int8", "i8": "int8", "f32": "fp32", "f16": "fp16", "bf16": "bf16"}
_PRIMITIVES = {"I8": "int8", "f32": "fp32", "FP32": "fp32", "bf16": "bf16", "BF16": "bf16"}
"""The last part of a primitive's name says what it computes in."""

_NO_PRIMITIVE = ("", "undef", "unknown")

_NUMPY_NAMES = {
    "f64": "float64",
    "f32": "float32",
    "f16": "float16",
    "bf16": "bfloat16",
    "i64": "int64",
    "i32": "int32",
    "i16": "int16",
    "i8": "int8",
    "u64": "uint64",
    "u32": "uint32",
    "u16": "uint16",
    "u8": "uint8",
    "boolean": "bool",
}

_NOT_RUN = ("Constant", "Parameter", "Result")

_CONVOLUTIONS = ("Convolution", "GroupConvolution", "ConvolutionBackpropData")
_PRODUCTS = (*_CONVOLUTIONS, "MatMul")
_ATTRIBUTES = ("strides", "pads_begin", "pads_end", "dilations", "kernel", "auto_pad", "axis", "mode")
"""Of OpenVINO's operators, those that say what a layer does."""


def openvino_layers(plan: Plan, shapes: Mapping[str, tuple[int, ...]] | None) -> tuple[EngineLayer, ...]:
    """The layers in the order in which they run.

    Args:
        shapes: of the inputs, for which the model is compiled; None: a free batch is 1, and with other free
            sizes the model is compiled for any shapes, so that sizes are not known.

    Raises:
        DataError: the model cannot have these shapes.
    """
    with open_watched(plan) as executor:
        return layers_compiled(executor, plan, default_shapes(plan) if shapes is None else shapes)


def layers_compiled(
    executor: WatchedOpenVino, plan: Plan, shapes: Mapping[str, tuple[int, ...]]
) -> tuple[EngineLayer, ...]:
    """The same of what was opened before, and is compiled for these shapes."""
    model = executor.runtime_model(executor.input_shapes(shapes))
    source = executor.source_model()
    rows = list(layers_of(model, source))
    nodes = _nodes_by_layer(rows, source, PlanNodes.of(plan))
    names = _value_names(rows, model, source, [spec.name for spec in plan.outputs])
    operators = {op.get_friendly_name(): op for op in source.get_ordered_ops()}
    plan_nodes = PlanNodes.of(plan)
    constants = constant_names(model)
    return tuple(
        _layer(name, node, nodes[name], plan_nodes, operators=operators, names=names, constants=constants)
        for name, node in rows
    )


def _value_names(
    rows: Sequence[tuple[str, Any]], model: openvino.Model, source: openvino.Model, outputs: Sequence[str]
) -> dict[tuple[str, int], str]:
    """The name of every value: that of the layer that makes it, or of the model's output that it is.

    Args:
        outputs: names of the model's.
    """
    found = {
        (node.get_friendly_name(), number): name
        for name, node in rows
        for number in range(len(node.outputs()))
    }
    for result, port in zip(model.get_results(), source.outputs, strict=True):
        made = result.input(0).get_source_output()
        name = next((name for name in outputs if name in port.get_names()), None)
        if name is not None:
            found[made.get_node().get_friendly_name(), made.get_index()] = name
    return found


def _nodes_by_layer(
    rows: list[tuple[str, Any]], source: openvino.Model, plan: PlanNodes
) -> dict[str, tuple[str, ...]]:
    """Nodes of the canonical model that each layer computes."""
    told = {original: name for name, node in rows for original in _originals(node)}
    operators = [op for op in source.get_ordered_ops() if op.get_type_name() not in _NOT_RUN]
    makers = {
        op.get_friendly_name(): [
            port.get_source_output().get_node().get_friendly_name() for port in op.inputs()
        ]
        for op in operators
    }
    products = {op.get_friendly_name() for op in operators if op.get_type_name() in _PRODUCTS}
    return nodes_by_layer([name for name, _ in rows], told, makers, plan, products=products)


def _originals(node: Any) -> list[str]:
    return [name for name in text_of(node, "originalLayersNames").split(",") if name]


def _layer(
    name: str,
    node: Any,
    nodes: tuple[str, ...],
    plan: PlanNodes,
    *,
    operators: Mapping[str, Any],
    names: Mapping[tuple[str, int], str],
    constants: Set[str],
) -> EngineLayer:
    """One layer.

    Args:
        operators: of the engine's model, by name.
        names: of values, by what the plugin calls the layer that makes them and by its output.
        constants: unique names of nodes that do not change from run to run.
    """
    primitive = text_of(node, "primitiveType")
    precision = _PRECISIONS.get(text_of(node, "runtimePrecision"), "")
    stem, _, last = primitive.rpartition("_")
    computes_in = _PRIMITIVES.get(last, precision)
    kind = layer_type(node)
    ports = list(node.inputs())
    weights = [port for port in ports if _maker(port) in constants]
    activations = [port for port in ports if _maker(port) not in constants]
    inputs = tuple(_form_of_input(port, names) for port in activations)
    own = node.get_friendly_name()
    outputs = tuple(
        _form(names.get((own, number), name), port, node, number)
        for number, port in enumerate(node.outputs())
    )
    weight_bytes = _weights(weights)
    return EngineLayer(
        name=name,
        kind=kind,
        nodes=nodes,
        sources=plan.sources(nodes),
        precision=precision,
        computes_in=computes_in,
        reason=plan.reason(nodes, computes_in) or _conversion_reason(inputs, outputs),
        tactic=None if primitive in _NO_PRIMITIVE or stem in _NO_PRIMITIVE else f"openvino: {primitive}",
        bytes_moved=bytes_moved((*inputs, *outputs), weight_bytes),
        operations=_operations(kind, ports, outputs),
        inputs=inputs,
        outputs=outputs,
        weights=weight_bytes,
        attributes=dict(_attributes(node, ports, operators)),
    )


def _maker(port: Any) -> str:
    name: str = port.get_source_output().get_node().get_name()
    return name


def _conversion_reason(inputs: Sequence[TensorForm], outputs: Sequence[TensorForm]) -> str:
    """What a layer that no node asked for is there for."""
    if not inputs or not outputs:
        return ""
    read, made = inputs[0], outputs[0]
    if read.dtype != made.dtype:
        return f"a conversion from {read.dtype} to {made.dtype}"
    return f"a conversion from {read.layout} to {made.layout}" if read.layout != made.layout else ""


def _form_of_input(port: Any, names: Mapping[tuple[str, int], str]) -> TensorForm:
    output = port.get_source_output()
    maker, number = output.get_node(), output.get_index()
    name = maker.get_friendly_name()
    return _form(names.get((name, number), name), output, maker, number)


def _form(name: str, port: Any, maker: Any, number: int) -> TensorForm:
    layouts = text_of(maker, "outputLayouts").split(",")
    layout = layouts[number] if number < len(layouts) else layouts[0]
    return TensorForm(name=name, dims=_dims(port), dtype=_dtype(port), layout=_layout(layout))


def _dims(port: Any) -> tuple[int | str, ...] | None:
    shape = port.get_partial_shape()
    if not shape.rank.is_static:
        return None
    return tuple(dim.get_length() if dim.is_static else "?" for dim in shape)


def _dtype(port: Any) -> str:
    """Numpy's name of the element type; the library's own for one that numpy lacks."""
    name: str = port.get_element_type().get_type_name()
    return _NUMPY_NAMES.get(name, name)


def _layout(text: str) -> str:
    if text == "".join(sorted(text)) and text.islower():
        return ROW_MAJOR
    if len(text) > 2 and text == f"a{''.join(sorted(text[1:-1]))}b":
        return CHANNELS_LAST
    return text or ROW_MAJOR


def _weights(ports: list[Any]) -> dict[str, int]:
    """Bytes of constants by element type."""
    found: dict[str, int] = {}
    for port in ports:
        size = size_bytes(_dims(port), _dtype(port))
        if size:
            found[_dtype(port)] = found.get(_dtype(port), 0) + size
    return found


def _operations(kind: str, ports: list[Any], outputs: tuple[TensorForm, ...]) -> int | None:
    """Two for every multiply-add; None for a layer whose products are not known, such as a subgraph."""
    dims = outputs[0].dims if outputs else None
    count = elements(dims)
    if dims is None or count is None:
        return None
    shapes = [_dims(port) for port in ports]
    if kind == "Convolution" and len(shapes) > 1 and shapes[1] is not None:
        taps = shapes[1][len(shapes[1]) - (len(dims) - 1) :]  # input channels of a group, then the kernel
        return 2 * count * math.prod(size for size in taps if isinstance(size, int))
    if kind in ("FullyConnected", "MatMul") and shapes and shapes[0]:
        terms = shapes[0][-1]
        return 2 * count * terms if isinstance(terms, int) else None
    return None


def _attributes(node: Any, ports: list[Any], operators: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    originals = [operators[name] for name in _originals(node) if name in operators]
    found = {key: value for op in reversed(originals) for key, value in op.get_attributes().items()}
    yield from ((key, _plain(found[key])) for key in _ATTRIBUTES if key in found and found[key] is not None)
    main = next((op for op in originals if op.get_type_name() in _CONVOLUTIONS), None)
    if main is not None and len(ports) > 1:
        weight, rank = _dims(ports[1]) or (), len(_dims(node.outputs()[0]) or ())
        yield "kernel", list(weight[len(weight) - (rank - 2) :])
        yield "groups", weight[0] if len(weight) > rank else 1
    fused = [op.get_type_name() for op in originals if op is not main]
    if fused:
        yield "fused", fused


def _plain(value: Any) -> Any:
    return value if isinstance(value, str | int | float | bool) else [int(item) for item in value]
