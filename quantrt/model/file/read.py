# SPDX-License-Identifier: Apache-2.0
"""A file, or a model in memory -> graph; large weights of files are memory-mapped."""

from __future__ import annotations

import mmap
import os
from dataclasses import dataclass
from pathlib import Path

import onnx
import onnx_ir as ir
from google.protobuf.message import DecodeError, EncodeError  # type: ignore[import-untyped]

from quantrt.errors import ModelError
from quantrt.ir.mapped import map_file
from quantrt.ir.missing_file import missing_file
from quantrt.model.file.check import check_proto
from quantrt.model.file.declared_shapes import settle_declared_shapes
from quantrt.model.file.name_nodes import name_nodes
from quantrt.model.file.tensors import attach_tensors
from quantrt.model.file.wire import TRUNCATED, Skeleton, strip_weights

__all__ = ["ReadModel", "read_model", "read_proto", "to_proto"]

# First bytes of files that are given by mistake.
_MAGIC = (
    (b"version https://git-lfs", "a Git LFS pointer", "`git lfs pull`"),
    (b"\x89PNG", "a PNG image", None),
    (b"\xff\xd8\xff", "a JPEG image", None),
    (
        b"PK\x03\x04",
        "a zip archive (PyTorch checkpoints and .npz are such)",
        "torch.onnx.export to make an .onnx file",
    ),
    (b"\x80\x02", "a Python pickle", "torch.onnx.export to make an .onnx file"),
    (b"\x89HDF", "an HDF5 file", None),
    (b"\x1f\x8b", "a gzip file", "unpacking it first"),
    (b"<?xml", "an XML file", "the ONNX file that it was made of, where it is OpenVINO's"),
    (b"<", "a web page or XML", None),
)

NARROW_TYPES = 10
"""The IR version that brought tensors of 8-bit floats and of 4 bits, which no operator set tells of."""


@dataclass(frozen=True)
class ReadModel:
    """A model as given.

    Attributes:
        graph: the graph, unchanged but for names given to unnamed nodes.
        file_bytes: size of the file and of the external data files it refers to.
        notes: what a user should know, one line each.
    """

    graph: ir.Model
    file_bytes: int
    notes: tuple[str, ...]


def read_model(path: Path) -> ReadModel:
    """Read and check the ONNX file at `path`.

    Raises:
        ModelError: there is no such file, it is not ONNX, damaged or unsupported, or its external data is
            missing, truncated or outside the model's folder.
    """
    mapping = _open(path)
    try:
        skeleton = strip_weights(memoryview(mapping))
        proto = onnx.ModelProto.FromString(skeleton.protobuf)
    except (ModelError, DecodeError) as error:
        raise _not_onnx(path, mapping, error) from error
    return _read(proto, skeleton, mapping, path)


def read_proto(proto: onnx.ModelProto) -> ReadModel:
    """Check a model in memory and make a graph of it, with weights of its own; `proto` stays as it is.

    Raises:
        ModelError: as of `read_model`; its external data is not loaded; it has more than 2 GB.
    """
    try:
        data = proto.SerializeToString()
    except (EncodeError, ValueError) as error:
        raise ModelError(
            "cannot take this model from memory",
            got=str(error) or "a model that protobuf does not write",
            expected="less than 2 GB",
            hint="`onnx.save(proto, 'model.onnx', save_as_external_data=True)`, and that path",
        ) from error
    skeleton = strip_weights(memoryview(data))
    return _read(onnx.ModelProto.FromString(skeleton.protobuf), skeleton, data, None)


def to_proto(model: ir.Model) -> onnx.ModelProto:
    """A graph that somebody hands over, with its weights and no files; `model` stays as it is.

    Raises:
        ModelError: a file that a weight lies in is missing or too short; the graph cannot be written.
    """
    try:
        return ir.to_proto(ir.external_data.load_to_model(model.clone()))
    except (OSError, RuntimeError, TypeError, ValueError) as error:
        cause = error.__cause__ or error
        raise ModelError(
            "cannot take this onnx_ir.Model",
            got=str(cause).splitlines()[0] if str(cause) else type(cause).__name__,
            expected="a graph with its weights, loaded or in files where it was read",
            hint="`onnx_ir.save(model, 'model.onnx')`, and that path",
        ) from error


def _read(
    proto: onnx.ModelProto, skeleton: Skeleton, data: mmap.mmap | bytes, path: Path | None
) -> ReadModel:
    """The graph of a model without its large weights, with what these are in its bytes.

    Args:
        path: of its file, beside which external data lies; None for a model in memory.
    """
    name = "the model" if path is None else f"'{path}'"
    check_proto(proto, name, {index: span.end - span.start for index, span in skeleton.weights.items()})
    proto.ir_version = min(proto.ir_version, _least_ir_version(proto))
    name_nodes(proto.graph)
    settled = settle_declared_shapes(proto)
    try:
        graph = ir.from_proto(proto)
    except (RuntimeError, ValueError, TypeError, KeyError) as error:
        reason = str(error.__cause__ or error).splitlines()[0]
        raise ModelError(f"cannot read the graph of {name}", got=reason) from error
    names = {index: initializer.name for index, initializer in enumerate(proto.graph.initializer)}
    lifted = {names[index]: span for index, span in skeleton.weights.items()}
    external_bytes = attach_tensors(graph, None if path is None else path.parent, data, lifted)
    graph.graph.sort()  # stable: a sorted graph keeps its order
    return ReadModel(graph, len(data) + external_bytes, () if settled is None else (settled,))


def _least_ir_version(proto: onnx.ModelProto) -> int:
    """The format of files that the model's operators need: of a later one libraries may know nothing.

    ONNX's own helpers write the newest that they know, whatever is in the model.
    """
    least = onnx.helper.find_min_ir_version_for(list(proto.opset_import), ignore_unknown=True)
    return max(least, NARROW_TYPES)


def _open(path: Path) -> mmap.mmap:
    if not path.exists():
        raise missing_file(path, ".onnx")
    if not path.is_file():
        what = "a folder" if path.is_dir() else "no regular file"
        raise ModelError(f"cannot read '{path}'", got=what, expected="an .onnx file", hint=_onnx_inside(path))
    try:
        if path.stat().st_size == 0:
            raise ModelError(
                f"cannot read '{path}'", got="an empty file", expected="an ONNX model", hint=_again(path)
            )
        return map_file(path)
    except OSError as error:
        raise ModelError(f"cannot open '{path}'", got=os.strerror(error.errno or 0)) from error


def _onnx_inside(path: Path) -> str | None:
    inside = sorted(path.glob("*.onnx")) if path.is_dir() else []
    return f"'{inside[0]}'" if inside else None


def _not_onnx(path: Path, mapping: mmap.mmap, error: Exception) -> ModelError:
    for magic, kind, hint in _MAGIC:
        if mapping[: len(magic)] == magic:
            return ModelError(
                f"'{path}' is not an ONNX model", got=kind, expected="an ONNX protobuf", hint=hint
            )
    reason, hint = "an invalid protobuf message", None
    if isinstance(error, ModelError):
        reason = f"{error.message}: {error.got}"
        hint = _again(path) if error.message == TRUNCATED else None
    return ModelError(
        f"cannot read '{path}' as an ONNX model", got=reason, expected="an ONNX protobuf", hint=hint
    )


def _again(path: Path) -> str:
    return f"copying it again: `ls -l '{path}'` has to say the size of the original"
