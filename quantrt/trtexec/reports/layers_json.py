# SPDX-License-Identifier: Apache-2.0
"""Layers of an engine as TensorRT's engine inspector writes them, field by field the same names and types.

A fused layer is called by the nodes of the user's file that it computes, joined by " + ", in the profile as
well. "Metadata" holds the same names one by one. What is not known of a layer is left out; "QuantRTLayer" and
"Layout" are additions.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from quantrt.calibrate.casts import numpy_dtype
from quantrt.ir.layout import layout_of
from quantrt.plan.plan import Plan
from quantrt.report.engine_layers.layer import (
    CHANNELS_LAST,
    ROW_MAJOR,
    EngineLayer,
    TensorForm,
    is_conversion,
)
from quantrt.runtime.unique_names import unique_names

__all__ = ["format_text", "layer_names", "layers_json", "layers_text"]

SEPARATOR = "\x1f"
"""Between the nodes of one fused layer."""

FREE = -1
"""A size that is free, in TensorRT's Dims."""

_ROWS = {
    "float32": "Row major linear FP32",
    "float16": "Row major linear FP16 format",
    "bfloat16": "Row major linear BFloat16 format",
    "int8": "Row major Int8 format",
    "float8_e4m3fn": "Row major linear FP8 format",
    "uint8": "Row major linear UInt8 format",
    "int32": "Row major linear Int32",
    "int64": "Row major linear Int64 format",
    "bool": "Row major linear BOOL",
}
_CHANNELS = {
    "float32": "Channel major FP32 format",
    "float16": "Channel major FP16 format",
    "int8": "Channel major Int8 format",
    "uint8": "Channel major UInt8 format",
}
_BARE = {
    "float32": "Float",
    "float16": "Half",
    "bfloat16": "BFloat16",
    "int8": "Int8",
    "float8_e4m3fn": "FP8",
    "uint8": "UInt8",
    "int32": "Int32",
    "int64": "Int64",
    "bool": "Bool",
    "float64": "Double",
}
"""Names of types alone: of a tensor in a layout that TensorRT has not, and of weights."""

_PARAMETER_TYPES = (
    (
        ("Conv", "ResizedConv", "Convolution", "QLinearConv", "FusedConv", "NhwcFusedConv", "ConvInteger"),
        "Convolution",
    ),
    (
        (
            "Gemm",
            "MatMul",
            "QGemm",
            "QLinearMatMul",
            "FullyConnected",
            "FusedMatMul",
            "FusedGemm",
            "DynamicQuantizeMatMul",
            "MatMulIntegerToFloat",
            "MatMulInteger",
        ),
        "MatrixMultiply",
    ),
    (("Softmax", "QLinearSoftmax"), "SoftMax"),
    (
        (
            "Reorder",
            "ReorderInput",
            "ReorderOutput",
            "Transpose",
            "Convert",
            "Cast",
            "QuantizeLinear",
            "DequantizeLinear",
            "View",
        ),
        "Reformat",
    ),
)
_POOLS = ("Pool", "Pooling")
_ACTIVATIONS = {
    "Relu": "RELU",
    "Clip": "CLIPPED_RELU",
    "LeakyRelu": "LEAKY_RELU",
    "Sigmoid": "SIGMOID",
    "Tanh": "TANH",
    "Elu": "ELU",
    "Selu": "SELU",
    "Gelu": "GELU_ERF",
    "HardSigmoid": "HARD_SIGMOID",
    "HardSwish": "HARD_SWISH",
    "Softplus": "SOFTPLUS",
}
CONVOLUTION = "Convolution"
NO_TACTIC = "0x0000000000000000"


def layer_names(layers: Sequence[EngineLayer]) -> dict[str, str]:
    """What each layer is called, by its name in the engine; no two alike."""
    wanted = [" + ".join(layer.sources) or layer.name for layer in layers]
    return dict(zip((layer.name for layer in layers), unique_names(wanted), strict=True))


def layers_json(plan: Plan, layers: Sequence[EngineLayer], *, is_detailed: bool) -> dict[str, Any]:
    """What --exportLayerInfo writes; without detail the names alone."""
    names = layer_names(layers)
    op_types = {row.name: row.op_type for row in plan.layers}
    rows = [dict(_fields(layer, names[layer.name], op_types)) for layer in _channels_first(layers, plan)]
    return {
        "Layers": rows if is_detailed else list(names.values()),
        "Bindings": [spec.name for spec in (*plan.inputs, *plan.outputs)],
    }


def layers_text(document: Mapping[str, Any]) -> Iterator[str]:
    """What --dumpLayerInfo prints: a line per layer, then the inputs and outputs."""
    yield "Layer Information:"
    yield "Layers:"
    for row in document["Layers"]:
        yield (
            row
            if isinstance(row, str)
            else ", ".join(f"{key}: {_one_line(value)}" for key, value in row.items())
        )
    yield ""
    yield "Bindings:"
    yield from document["Bindings"]


def format_text(form: TensorForm) -> str:
    """Element type and layout in TensorRT's words; the type alone in a layout that it has none for."""
    if form.layout == ROW_MAJOR:
        return _ROWS.get(form.dtype, "Unknown format")
    if form.layout == CHANNELS_LAST and form.dtype in _CHANNELS:
        return _CHANNELS[form.dtype]
    return _BARE.get(form.dtype, "Unknown format")


def _channels_first(layers: Sequence[EngineLayer], plan: Plan) -> list[EngineLayer]:
    """The layers with the sizes of images in TensorRT's order, N C H W, wherever channels lie.

    ONNX Runtime's operators on images whose channels lie innermost have them last in their shapes too, and so
    have an engine's inputs and outputs in such a layout.
    """
    laid_out = {spec.name: layout_of(spec) for spec in (*plan.inputs, *plan.outputs)}
    inside = [layer for layer in layers if layer.attributes.get("channels_last")]
    images = {form.name for layer in inside for form in (*layer.inputs[:1], *layer.outputs[:1])}

    def turned(form: TensorForm) -> TensorForm:
        dims, layout = form.dims, laid_out.get(form.name)
        if layout is not None and dims is not None and layout.vector is None:
            return replace(form, dims=(dims[0], dims[-1], *dims[1:-1]), layout=CHANNELS_LAST)
        if form.name not in images or form.layout != ROW_MAJOR or dims is None or len(dims) < 3:
            return form
        return replace(form, dims=(dims[0], dims[-1], *dims[1:-1]), layout=CHANNELS_LAST)

    return [
        replace(layer, inputs=tuple(map(turned, layer.inputs)), outputs=tuple(map(turned, layer.outputs)))
        for layer in layers
    ]


def _fields(layer: EngineLayer, name: str, op_types: Mapping[str, str]) -> Iterator[tuple[str, Any]]:
    kind = _parameter_type(layer)
    yield "Name", name
    yield "LayerType", layer.kind
    yield "Inputs", [_tensor(form) for form in layer.inputs]
    yield "Outputs", [_tensor(form) for form in layer.outputs]
    yield "ParameterType", kind
    if kind == CONVOLUTION:
        yield from _convolution(layer, op_types)
    elif kind == "MatrixMultiply":
        yield from _product(layer)
    elif kind == "Pooling":
        yield from _pooling(layer)
    elif kind == "Reformat":
        yield "Origin", "QDQ" if _changes_codes(layer) else "REFORMAT"
    if layer.tactic is not None:
        yield "TacticName", layer.tactic
    yield "TacticValue", NO_TACTIC if layer.tactic is None else _hash(layer.tactic)
    yield "StreamId", 0
    yield "Metadata", SEPARATOR.join(f"[ONNX Layer: {node}]" for node in layer.sources)
    yield "QuantRTLayer", layer.name


def _tensor(form: TensorForm) -> dict[str, Any]:
    return {
        "Name": form.name,
        "Location": "Device",
        "Dimensions": [dim if isinstance(dim, int) else FREE for dim in form.dims or ()],
        "Format/Datatype": format_text(form),
        "Layout": form.layout,
    }


def _parameter_type(layer: EngineLayer) -> str:
    if is_conversion(layer):
        return "Reformat"
    if layer.kind.endswith(_POOLS):
        return "Pooling"
    return next((name for kinds, name in _PARAMETER_TYPES if layer.kind in kinds), layer.kind)


def _convolution(layer: EngineLayer, op_types: Mapping[str, str]) -> Iterator[tuple[str, Any]]:
    found = _Window(layer)
    kernel, groups = found.sizes("kernel", "kernel_shape"), _integer(layer.attributes, "groups", "group")
    yield from found.fields("Kernel", kernel)
    dilations = found.sizes("dilations")
    if dilations is not None:
        yield "Dilation", dilations
    maps = _channels(layer.outputs)
    if maps is not None:
        yield "OutMaps", maps
    if groups is not None:
        yield "Groups", groups
    read = _channels(layer.inputs)
    if kernel and groups and maps and read:
        yield from _weights(layer.weights, maps * (read // groups) * math.prod(kernel), maps)
    yield "HasSparseWeights", 0
    activation = next(
        (_ACTIVATIONS[op_types[n]] for n in layer.nodes if op_types.get(n) in _ACTIVATIONS), "NONE"
    )
    yield "Activation", activation
    yield "HasReLU", int(activation == "RELU")


def _product(layer: EngineLayer) -> Iterator[tuple[str, Any]]:
    """The weights of a product with a constant matrix."""
    sides = [
        forms[0].dims[-1] if forms and forms[0].dims else None for forms in (layer.inputs, layer.outputs)
    ]
    terms, columns = sides
    if layer.weights and isinstance(terms, int) and isinstance(columns, int):
        yield from _weights(layer.weights, terms * columns, columns)


def _pooling(layer: EngineLayer) -> Iterator[tuple[str, Any]]:
    found = _Window(layer)
    mode = str(layer.attributes.get("mode", layer.kind)).lower()
    yield "PoolingType", "MAX" if "max" in mode else "AVERAGE"
    yield from found.fields("WindowSize", found.sizes("kernel", "kernel_shape"))


class _Window:
    """Kernel, strides and pads of a layer, however its library calls them."""

    def __init__(self, layer: EngineLayer) -> None:
        self._attributes = layer.attributes

    def sizes(self, *names: str) -> list[int] | None:
        """The first attribute of these names that is a list of sizes."""
        for name in names:
            value = self._attributes.get(name)
            if isinstance(value, list | tuple) and value:
                return [int(size) for size in value]
        return None

    def fields(self, label: str, kernel: list[int] | None) -> Iterator[tuple[str, Any]]:
        """The window under `label`, then pads and strides."""
        if kernel is not None:
            yield label, kernel
        pads = self.sizes("pads")
        before, after = self.sizes("pads_begin"), self.sizes("pads_end")
        if pads is not None:
            before, after = pads[: len(pads) // 2], pads[len(pads) // 2 :]
        if before is not None and after is not None:
            yield "PaddingMode", "kEXPLICIT_ROUND_DOWN"
            yield "PrePadding", before
            yield "PostPadding", after
        strides = self.sizes("strides")
        if strides is not None:
            yield "Stride", strides


def _weights(found: Mapping[str, int], count: int, maps: int) -> Iterator[tuple[str, Any]]:
    """Weights and, where the bytes leave no doubt whether there is one, the bias."""
    sizes = {name: numpy_dtype(name).itemsize for name in found if name in _BARE}
    fitting = [name for name, size in sizes.items() if found[name] >= count * size]
    if not fitting:
        return
    kind = min(fitting, key=lambda name: sizes[name])
    yield "Weights", {"Type": _BARE[kind], "Count": count}
    if numpy_dtype(kind).kind == "f" or kind == "bfloat16":
        rest = found[kind] - count * sizes[kind]
        bias = {0: (kind, 0), maps * sizes[kind]: (kind, maps)}.get(rest)
    else:
        bias = ("int32", maps) if found.get("int32") == maps * np.dtype(np.int32).itemsize else None
    if bias is not None:
        yield "Bias", {"Type": _BARE[bias[0]], "Count": bias[1]}
        yield "HasBias", int(bias[1] > 0)


def _channels(forms: Sequence[TensorForm]) -> int | None:
    """Channels of the first tensor, an image."""
    dims = forms[0].dims if forms else None
    return dims[1] if dims and len(dims) > 2 and isinstance(dims[1], int) else None


def _integer(attributes: Mapping[str, Any], *names: str) -> int | None:
    return next((value for name in names if isinstance(value := attributes.get(name), int)), None)


def _changes_codes(layer: EngineLayer) -> bool:
    """Whether it makes codes of floats, or the other way round."""
    kinds = [
        numpy_dtype(form.dtype).kind
        for form in (*layer.inputs[:1], *layer.outputs[:1])
        if form.dtype in _BARE
    ]
    return len(kinds) == 2 and (kinds[0] in "iu") != (kinds[1] in "iu")


def _hash(text: str) -> str:
    """64 bits that tell tactics apart; the same in every engine."""
    return f"0x{hashlib.sha256(text.encode()).hexdigest()[:16]}"


def _one_line(value: Any) -> str:
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{key}: {_one_line(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ",".join(_one_line(item) for item in value) + "]"
    return str(value).replace(SEPARATOR, "")
