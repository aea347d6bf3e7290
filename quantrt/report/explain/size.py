# SPDX-License-Identifier: Apache-2.0
"""Why an engine file has its size: bytes by what they are, and what is in it twice."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from quantrt.dtypes import precision_of
from quantrt.plan.packed import pack
from quantrt.plan.plan import LibraryModel, Plan
from quantrt.plan.program_json import program_from_model
from quantrt.report.engine_layers.layer import EngineLayer

__all__ = ["Part", "Size", "describe_size"]

SCALES = "scales and zero points"
GRAPH = "graph"
HEADER = "header: report, layers, tensor table"
MACHINE_CODE = "machine code"

ACCUMULATOR_SCALE = "accumulator scale"
"""In the keys of the constants that turn sums of codes into floats."""

LARGE_FLOATS_BYTES = 1024
"""Of a product's float weights, from which on they are worth a line."""

TEXT_RATIO = 0.2
"""Of the operators and names in a protobuf, what is left of them in .xz: 0.19 of a ResNet-56's in int8."""

LARGE_TABLE_BYTES = 1 << 18
"""The same of what is only picked from, or added."""


@dataclass(frozen=True)
class Part:
    """Bytes of one kind.

    Attributes:
        what: such as "int8 weights".
        array: its content's digest, to find what is there twice; empty for what cannot be.
    """

    what: str
    size_bytes: int
    digest: str = ""


@dataclass(frozen=True, kw_only=True)
class Size:
    """What a file's bytes are.

    Attributes:
        file_bytes: of the file; of the model alone where there is none.
        parts: (what, bytes), the largest first; together file_bytes.
        duplicate_bytes: of arrays that are there once already.
        float_layers: (layer, bytes of float weights, why it is float) of products and tables without codes,
            the largest first.
        model_bytes: of the float model that it was built from; None where it was made in memory.
    """

    file_bytes: int
    parts: tuple[tuple[str, int], ...]
    duplicate_bytes: int
    float_layers: tuple[tuple[str, int, str], ...]
    model_bytes: int | None

    @property
    def float_bytes(self) -> int:
        """Float weights of the products and tables that stayed float."""
        return sum(size for _, size, _ in self.float_layers)


def describe_size(plan: Plan, file_bytes: int | None, layers: Sequence[EngineLayer]) -> Size:
    """The bytes of an engine.

    Args:
        file_bytes: of its file; None where it has none.
    """
    parts = list(_PARTS[plan.model.library](plan))
    sums: dict[str, int] = {}
    seen: set[str] = set()
    duplicate_bytes = 0
    for part in parts:
        sums[part.what] = sums.get(part.what, 0) + part.size_bytes
        duplicate_bytes += part.size_bytes if part.digest and part.digest in seen else 0
        seen.add(part.digest)
    rest = plan.model.size_bytes - sum(sums.values())
    sums[GRAPH] = sums.get(GRAPH, 0) + rest
    if file_bytes is not None:
        stored = pack(plan.model)
        _shrink(sums, plan.model, stored)
        sums[HEADER] = file_bytes - stored.size_bytes
    return Size(
        file_bytes=file_bytes if file_bytes is not None else plan.model.size_bytes,
        parts=tuple(sorted(((what, size) for what, size in sums.items() if size), key=lambda row: -row[1])),
        duplicate_bytes=duplicate_bytes,
        float_layers=_float_layers(layers),
        model_bytes=plan.report.get("model", {}).get("file_bytes") or None,
    )


def _shrink(sums: dict[str, int], model: LibraryModel, stored: LibraryModel) -> None:
    """Take off what compression saves.

    Graph and machine code share it in equal parts of their sizes. Of a model for a CPU the graph is what it
    is by itself, or TEXT_RATIO of its text where it holds weights too, and all weights share the rest.
    """
    saved_bytes = model.size_bytes - stored.size_bytes
    texts = {what: sums[what] for what in sums if what == GRAPH or what.startswith(MACHINE_CODE)}
    if model.library == "cuda" or (model.library == "openvino" and stored.weights):
        _share(sums, texts, saved_bytes)
        return
    text_bytes = sum(texts.values())
    if model.library == "onnxruntime":
        text_saved = round((1 - TEXT_RATIO) * text_bytes)
    else:
        text_saved = len(model.graph) - pack(replace(model, weights={})).size_bytes
    _share(sums, texts, text_saved)
    outside = Counter[str]()
    for array in stored.weights.values():
        outside[f"{array.dtype} weights"] += array.nbytes
    arrays = {what: max(size - outside[what], 0) for what, size in sums.items() if what not in texts}
    _share(sums, arrays, saved_bytes - text_saved)


def _share(sums: dict[str, int], sizes: Mapping[str, int], saved_bytes: int) -> None:
    """Take bytes off some parts, by the sizes that are compressed; what rounding leaves, off the largest."""
    total = sum(sizes.values())
    shares = {what: round(saved_bytes * size / max(total, 1)) for what, size in sizes.items()}
    if shares:
        largest = max(sizes, key=sizes.__getitem__)
        shares[largest] += saved_bytes - sum(shares.values())
    for what, share in shares.items():
        sums[what] -= share


def _float_layers(layers: Iterable[EngineLayer]) -> tuple[tuple[str, int, str], ...]:
    found = []
    for layer in layers:
        sizes = {dtype: size for dtype, size in layer.weights.items() if not precision_of(dtype)}
        floats = sum(size for dtype, size in sizes.items() if "float" in dtype)
        least_bytes = LARGE_FLOATS_BYTES if layer.operations else LARGE_TABLE_BYTES
        if len(sizes) == len(layer.weights) and floats >= least_bytes:
            found.append((layer.name, floats, layer.reason))
    return tuple(sorted(found, key=lambda row: -row[1]))


def _cuda_parts(plan: Plan) -> Iterator[Part]:
    program = program_from_model(plan.model)
    for key in (*program.weights, *program.coded):
        array, *scales = program.held(key)
        is_scale = ACCUMULATOR_SCALE in key
        held = program.held_type(key)
        kind = precision_of(held) or held
        yield Part(SCALES if is_scale else f"{kind} weights", array.nbytes, _digest(array))
        yield from (Part(SCALES, scale.nbytes, _digest(scale)) for scale in scales)
    for kernel in program.kernels.values():
        for capability, cubin in kernel.cubins.items():
            yield Part(f"{MACHINE_CODE} for sm_{capability}", len(cubin), hashlib.sha256(cubin).hexdigest())


def _onnxruntime_parts(plan: Plan) -> Iterator[Part]:
    model = onnx.ModelProto()
    model.ParseFromString(plan.model.graph)
    scales = {
        name
        for node in model.graph.node
        if node.op_type in ("QuantizeLinear", "DequantizeLinear")
        for name in node.input[1:]
    }
    for tensor in model.graph.initializer:
        array = plan.model.weights.get(tensor.name)
        if array is None and tensor.data_location != onnx.TensorProto.EXTERNAL:
            array = numpy_helper.to_array(tensor)
        if array is not None:
            dtype = helper.tensor_dtype_to_np_dtype(tensor.data_type)
            yield Part(SCALES if tensor.name in scales else f"{dtype} weights", array.nbytes, _digest(array))


def _openvino_parts(plan: Plan) -> Iterator[Part]:
    from quantrt.runtime.openvino.watch import WatchedOpenVino  # openvino is optional

    executor = WatchedOpenVino(plan.model, plan.options)
    try:
        seen: set[str] = set()
        for node in executor.source_model().get_ordered_ops():
            if node.get_type_name() != "Constant":
                continue
            array = node.get_data()
            digest = _digest(array)
            if digest not in seen:  # OpenVINO writes equal constants once
                name = node.get_element_type().to_dtype()
                yield Part(SCALES if _is_scale(node) else f"{np.dtype(name)} weights", array.nbytes)
            seen.add(digest)
    finally:
        executor.close()


def _is_scale(node: Any) -> bool:
    """Whether a constant of an OpenVINO model is the parameter of a quantization."""
    targets = [port for output in node.outputs() for port in output.get_target_inputs()]
    if len(targets) != 1:
        return False
    reader, index = targets[0].get_node(), int(targets[0].get_index())
    kind: str = reader.get_type_name()
    if kind in ("Convert", "Reshape"):
        return _is_scale(reader)
    if kind == "FakeQuantize":
        return index > 0
    other = [port for port in reader.inputs() if port.get_index() != index]
    return (
        kind in ("Subtract", "Multiply")
        and bool(other)
        and other[0].get_source_output().get_node().get_type_name() in ("Convert", "Subtract")
    )


def _digest(array: np.ndarray) -> str:
    digest = hashlib.sha256(f"{array.dtype}{array.shape}".encode())
    digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()


_PARTS = {"cuda": _cuda_parts, "onnxruntime": _onnxruntime_parts, "openvino": _openvino_parts}
