# SPDX-License-Identifier: Apache-2.0
"""Stage 1: a file, or a model in memory -> Model."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Collection, Iterator
from os import PathLike
from pathlib import Path

import onnx
import onnx_ir as ir

from quantrt.errors import ModelError, UsageError
from quantrt.ir.clone import clone
from quantrt.ir.collector import without_collector
from quantrt.ir.tensor_spec import TensorSpec
from quantrt.model.absent import absent_tensors, tensors_of
from quantrt.model.canonicalize import canonicalize
from quantrt.model.check_pairs import check_pairs
from quantrt.model.file.read import read_model, read_proto, to_proto
from quantrt.model.fingerprint import fingerprint
from quantrt.model.model import Model
from quantrt.model.passes.spell.convert_opset import TARGET_OPSET
from quantrt.model.passes.types.narrow_doubles import doubles_of

__all__ = ["Source", "load_model", "make_model"]

logger = logging.getLogger(__name__)

_STANDARD = ("", "ai.onnx")


Source = str | PathLike[str] | onnx.ModelProto | ir.Model | Model
"""What a model is given as: the path of an ONNX file, a model in memory, or what was loaded before."""


@without_collector()
def load_model(source: Source) -> Model:
    """Read an ONNX model, check it, and make it canonical.

    Weights of a page or more of a file stay memory-mapped, whether they are in it or beside it; the files
    may be replaced or deleted afterwards, but must not be written into. A model in memory is copied and
    left as it is. A Model is returned itself.

    Raises:
        ModelError: the file is missing, not ONNX, damaged, unsupported, refers to data that is missing or
            outside its folder, or has scales or zero points that do not fit; external data of a model in
            memory is not loaded, or it has more than 2 GB.
        UsageError: it is nothing of this kind.
    """
    if isinstance(source, Model):
        return source
    if isinstance(source, str | PathLike):
        path = Path(source)
        read = read_model(path)
    elif isinstance(source, onnx.ModelProto | ir.Model):
        path = None
        read = read_proto(source if isinstance(source, onnx.ModelProto) else to_proto(source))
    else:
        raise UsageError(
            "cannot read a model",
            got=f"a {type(source).__module__}.{type(source).__name__}",
            expected="the path of an ONNX file, an onnx.ModelProto or an onnx_ir.Model",
            hint="its `model_proto`"  # as a torch.onnx.ONNXProgram has it
            if hasattr(type(source), "model_proto")
            else "torch.onnx.export(module, example, 'model.onnx')",
        )
    return _model(read.graph, path=path, file_bytes=read.file_bytes, notes=read.notes)


def make_model(graph: ir.Model) -> Model:
    """The Model of a graph made in memory, which is cloned and left as it is.

    Raises:
        ModelError: an input or output is not a tensor.
    """
    return _model(clone(graph), path=None, file_bytes=0, notes=())


def _model(graph: ir.Model, *, path: Path | None, file_bytes: int, notes: tuple[str, ...]) -> Model:
    identity = fingerprint(graph)
    before = tuple(tensors_of(graph))
    ends = (*graph.graph.inputs, *graph.graph.outputs)
    bfloats = frozenset(value.name or "" for value in ends if value.dtype == ir.DataType.BFLOAT16)
    changed_types = tuple(_told_types(graph, bfloats))
    changes = canonicalize(graph)
    check_pairs(graph)
    notes = (*_told_operators(graph), *notes, *changed_types)
    for note in notes:
        logger.warning("%s: %s", path.name if path is not None else "model", note)
    return Model(
        graph=graph,
        path=path,
        inputs=tuple(_spec(value) for value in graph.graph.inputs),
        outputs=tuple(_spec(value) for value in graph.graph.outputs),
        fingerprint=identity,
        changes=changes,
        file_bytes=file_bytes,
        notes=notes,
        absent=absent_tensors(before, graph),
        bfloats=bfloats,
    )


def _told_types(graph: ir.Model, bfloats: Collection[str]) -> Iterator[str]:
    """What becomes of types that engines have not."""
    doubles = doubles_of(graph)
    if doubles:
        yield f"{', '.join(doubles)}: float64 in the file, float32 in engines"
    if bfloats:
        names = ", ".join(f"'{name}'" for name in sorted(bfloats))
        yield f"{names}: bfloat16 in the file and in an engine for a GPU, float32 in one for a CPU"


def _told_operators(graph: ir.Model) -> Iterator[str]:
    """What a canonical graph has that not every stage knows."""
    foreign = Counter(
        f"{node.domain}.{node.op_type}" for node in graph.graph.all_nodes() if node.domain not in _STANDARD
    )
    if foreign:
        told = ", ".join(f"{name} ({count})" for name, count in sorted(foreign.items()))
        yield f"operators from outside the ONNX standard: {told}"
    opset = graph.opset_imports.get("", TARGET_OPSET)
    if opset < TARGET_OPSET:
        yield f"opset {opset} cannot be raised to {TARGET_OPSET}: no per-channel quantization"


def _spec(value: ir.Value) -> TensorSpec:
    name = value.name or ""
    if (
        value.type is None
        or not isinstance(value.type, ir.TensorType)
        or value.dtype in (None, ir.DataType.UNDEFINED)
    ):
        got = "no type" if value.type is None else str(value.type)
        raise ModelError(
            f"cannot use '{name}' as input or output of the model", got=got, expected="a dense tensor"
        )
    dtype = "string" if value.dtype == ir.DataType.STRING else value.dtype.numpy().name
    if value.shape is None:
        return TensorSpec(name, dtype, None)
    dims = tuple(dim if isinstance(dim, int) else dim.value for dim in value.shape.dims)
    return TensorSpec(name, dtype, dims)
