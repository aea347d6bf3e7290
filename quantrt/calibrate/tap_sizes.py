# SPDX-License-Identifier: Apache-2.0
"""How many bytes each tapped value takes for inputs of given shapes."""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping, Sequence
from typing import Any

import onnx
import onnx_ir as ir
from onnx.checker import ValidationError
from onnx.shape_inference import InferenceError

from quantrt.calibrate.records import Arrays
from quantrt.ir.clone import clone
from quantrt.ir.session import ORT_ERRORS, float_session
from quantrt.ir.split import split_weights

__all__ = ["TapSizes"]

logger = logging.getLogger(__name__)

WIDEST_BYTES = 8
"""Per element of a value whose type is not known: float64."""


class TapSizes:
    """Sizes of a graph's values, inferred from the shapes of a feed; where that fails, by running it once."""

    def __init__(self, graph: ir.Model, names: Sequence[str]) -> None:
        self._graph = graph
        self._names = names
        self._probe: tuple[list[str], Any] | None = None

    def of(self, feed: Arrays) -> dict[str, int]:
        """Bytes of every value for feeds of these shapes.

        A value that can only be known by running is taken as 0 bytes when the model fails on the feed;
        the run that follows reports the failure.
        """
        sizes = _inferred_bytes(self._graph, {name: array.shape for name, array in feed.items()})
        if any(name not in sizes for name in self._names):
            sizes |= self._measured_bytes(feed)
        return {name: sizes.get(name, 0) for name in self._names}

    def _measured_bytes(self, feed: Arrays) -> dict[str, int]:
        """Sizes from a run that returns the shapes of the values and none of the values."""
        if self._probe is None:
            self._probe = _with_shape_outputs(self._graph, self._names)
        outputs, session = self._probe
        try:
            shapes = session.run(outputs, dict(feed))
        except ORT_ERRORS as error:
            logger.debug("cannot measure the sizes of activations: %s", error)
            return {}
        types = {value.name: value.dtype for node in self._graph.graph for value in node.outputs}
        return {
            name: math.prod(shape.tolist()) * _item_bytes(types.get(name))
            for name, shape in zip(self._names, shapes, strict=True)
        }


def _inferred_bytes(graph: ir.Model, shapes: Mapping[str, tuple[int, ...]]) -> dict[str, int]:
    """Sizes that follow from the shapes by inference, and from the symbols the model itself declares."""
    protobuf, _ = split_weights(graph)
    model = onnx.load_model_from_string(protobuf)
    symbols: dict[str, int] = {}
    for value in model.graph.input:
        dims = value.type.tensor_type.shape.dim
        for dim, size in zip(dims, shapes.get(value.name, ()), strict=False):
            if dim.HasField("dim_param"):
                symbols[dim.dim_param] = size
    for value in (*model.graph.input, *model.graph.value_info, *model.graph.output):
        for dim in value.type.tensor_type.shape.dim:
            if dim.dim_param in symbols:
                dim.dim_value = symbols[dim.dim_param]
    try:
        model = onnx.shape_inference.infer_shapes(model, data_prop=True)
    except (InferenceError, ValidationError, RuntimeError, ValueError) as error:
        logger.debug("shape inference failed: %s", error)
    found = {}
    for value in (*model.graph.value_info, *model.graph.output):
        tensor = value.type.tensor_type
        if tensor.HasField("shape") and all(dim.HasField("dim_value") for dim in tensor.shape.dim):
            item_bytes = _item_bytes(ir.DataType(tensor.elem_type))
            found[value.name] = math.prod(dim.dim_value for dim in tensor.shape.dim) * item_bytes
    return found


def _with_shape_outputs(graph: ir.Model, names: Sequence[str]) -> tuple[list[str], Any]:
    """A session with the shape of each value as an output of its own."""
    probe = clone(graph)
    values = {value.name: value for node in probe.graph for value in node.outputs}
    outputs = []
    for index, name in enumerate(names):
        node = ir.node("Shape", [values[name]])
        shape = node.outputs[0]
        shape.name = f"{name}/quantrt_shape_{index}"
        shape.dtype = ir.DataType.INT64
        probe.graph.append(node)
        outputs.append(shape)
    probe.graph.outputs[:] = outputs
    return [str(shape.name) for shape in outputs], float_session(probe)


def _item_bytes(dtype: ir.DataType | None) -> int:
    if dtype is None or dtype in (ir.DataType.UNDEFINED, ir.DataType.STRING):
        return WIDEST_BYTES
    return max(1, math.ceil(dtype.bitwidth / 8))
