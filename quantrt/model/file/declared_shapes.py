# SPDX-License-Identifier: Apache-2.0
"""Shapes that a file declares, held against those that follow from its inputs.

Who makes a batch size free by editing the input leaves the old size declared for everything behind it;
constant folding then takes it for known, and the engine is right for that size alone. Some converters write
-1 for a size that is free.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping

import onnx

from quantrt.ir.shapes import ONNX_ERRORS

__all__ = ["settle_declared_shapes"]

logger = logging.getLogger(__name__)

Dims = list[int | str | None]
"""Sizes, symbols, and None for what is not known."""


def settle_declared_shapes(proto: onnx.ModelProto) -> str | None:
    """Free negative sizes, and drop the shapes declared inside where one is contradicted.

    Returns:
        What a user should know of it; None where nothing is contradicted.
    """
    graph = proto.graph
    for value in (*graph.input, *graph.output, *graph.value_info):
        for dim in value.type.tensor_type.shape.dim:
            if dim.dim_value < 0:
                dim.ClearField("dim_value")
    declared = {value.name: dims for value in graph.value_info if (dims := _dims(value)) is not None}
    ends = {value.name: dims for value in graph.output if (dims := _dims(value)) is not None}
    found = _inferred(proto)
    wrong = [name for name in (*declared, *ends) if _contradicts((declared | ends)[name], found.get(name))]
    if not wrong:
        return None
    weights = {tensor.name for tensor in graph.initializer}
    for value in graph.value_info:
        if value.name not in weights:
            value.type.tensor_type.ClearField("shape")
    for value in graph.output:
        if value.name in wrong:
            value.type.tensor_type.ClearField("shape")
    name = wrong[0]
    return (
        f"'{name}' is declared as {_text((declared | ends)[name])}, and computed as {_text(found[name])}: "
        "shapes declared inside the model are not used"
    )


def _inferred(proto: onnx.ModelProto) -> Mapping[str, Dims]:
    """Shapes that follow from those of the inputs alone, whose unknown sizes have a symbol each."""
    bare = onnx.ModelProto()
    bare.CopyFrom(proto)
    del bare.graph.value_info[:]
    for value in bare.graph.output:
        value.type.tensor_type.ClearField("shape")
    symbols = set()
    for value in bare.graph.input:
        for axis, dim in enumerate(value.type.tensor_type.shape.dim):
            if not dim.HasField("dim_value") and not dim.dim_param:
                dim.dim_param = f"{value.name}.{axis}"
            symbols.add(dim.dim_param)
    try:
        bare = onnx.shape_inference.infer_shapes(bare)
    except ONNX_ERRORS as error:
        logger.debug("declared shapes were not checked: %s", error)
        return {}
    shapes = ((value.name, _dims(value)) for value in (*bare.graph.value_info, *bare.graph.output))
    return {
        name: [dim if isinstance(dim, int) or dim in symbols else None for dim in dims]
        for name, dims in shapes
        if dims is not None
    }


def _dims(value: onnx.ValueInfoProto) -> Dims | None:
    """None where the shape, or that it is a tensor, is not declared."""
    if not value.type.HasField("tensor_type") or not value.type.tensor_type.HasField("shape"):
        return None
    return list(_sizes(value.type.tensor_type.shape))


def _sizes(shape: onnx.TensorShapeProto) -> Iterator[int | str | None]:
    for dim in shape.dim:
        yield dim.dim_value if dim.HasField("dim_value") else dim.dim_param or None


def _contradicts(declared: Dims, found: Dims | None) -> bool:
    """Whether a size is declared where another one, or one that is free, is computed."""
    if found is None:
        return False
    if len(found) != len(declared):
        return True
    pairs = zip(declared, found, strict=True)
    return any(isinstance(a, int) and b is not None and a != b for a, b in pairs)


def _text(dims: Dims) -> str:
    return "[" + ",".join("?" if dim is None else str(dim) for dim in dims) + "]"
