# SPDX-License-Identifier: Apache-2.0
"""Attach to a parsed graph its weights: memory-mapped where they are large or in files of their own."""

from __future__ import annotations

import math
import mmap
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir

from quantrt.errors import ModelError
from quantrt.ir.mapped import map_file
from quantrt.model.file.wire import Span

__all__ = ["attach_tensors"]


def attach_tensors(
    graph: ir.Model, folder: Path | None, data: mmap.mmap | bytes, lifted: Mapping[str, Span]
) -> int:
    """Make every tensor of `graph` an array in memory or in a mapped file; keep no protobuf alive.

    Args:
        folder: where external data lies; None for a model in memory.
        data: the model's bytes.
        lifted: places in them of the initializers whose data was left out of the protobuf, by name.

    Returns:
        Size in bytes of the external data files.

    Raises:
        ModelError: a tensor's data is missing, outside the folder, truncated or of the wrong size.
    """
    files = _ExternalFiles(folder)
    for value, tensor in _initializers(graph):
        span = lifted.get(tensor.name or "") if value.graph is graph.graph else None
        if span is not None:
            value.const_value = _mapped_tensor(tensor, data, span.start)
        else:
            value.const_value = _loaded(tensor, files)
    for node in graph.graph.all_nodes():
        _attach_attributes(node, files)
    for function in graph.functions.values():
        for node in function.all_nodes():
            _attach_attributes(node, files)
    return files.size_bytes


class _ExternalFiles:
    """The external data files of one model, each opened once."""

    def __init__(self, folder: Path | None) -> None:
        self._folder = folder
        self._mappings: dict[Path, mmap.mmap] = {}

    @property
    def size_bytes(self) -> int:
        return sum(len(mapping) for mapping in self._mappings.values())

    def tensor(self, tensor: ir.ExternalTensor) -> ir.TensorProtocol:
        name, offset, size = tensor.name, tensor.offset or 0, _size_bytes(tensor)
        if tensor.length is not None and tensor.length != size:
            raise ModelError(
                f"external data of '{name}' disagrees with its shape",
                got=f"{tensor.length} bytes",
                expected=f"{size} bytes for {_describe(tensor)}",
            )
        if size == 0:
            return ir.Tensor(np.empty(tensor.shape.numpy(), tensor.dtype.numpy()), name=name)
        mapping = self._open(str(tensor.location), name)
        if offset < 0 or offset + size > len(mapping):
            raise ModelError(
                f"external data of '{name}' is truncated: '{tensor.location}'",
                got=f"a file of {len(mapping)} bytes",
                expected=f"at least {offset + size} bytes",
            )
        return _mapped_tensor(tensor, mapping, offset)

    def _open(self, location: str, name: str) -> mmap.mmap:
        if self._folder is None:
            raise ModelError(
                f"external data of '{name}' is not loaded: it lies in '{location}'",
                got="a model in memory without it",
                hint="the path of the model's file, or `onnx.load(path)`, which loads external data too",
            )
        file = self._resolve(location, name, self._folder)
        if file not in self._mappings:
            if not file.is_file():
                raise ModelError(
                    f"external data of '{name}' is missing: no file '{location}' in '{self._folder}'",
                    hint="copying the model together with its data files",
                )
            try:
                if file.stat().st_size == 0:
                    raise ModelError(
                        f"external data of '{name}' is truncated: '{location}'", got="an empty file"
                    )
                self._mappings[file] = map_file(file)
            except OSError as error:
                reason = os.strerror(error.errno or 0)
                raise ModelError(f"cannot open '{file}', external data of '{name}'", got=reason) from error
        return self._mappings[file]

    def _resolve(self, location: str, name: str, inside: Path) -> Path:
        """The file at `location`, links followed, which must lie in the model's folder."""
        problem = f"external data of '{name}' lies outside the model's folder: '{location}'"
        expected = f"a file inside '{inside}'"
        if not location or "\0" in location:
            raise ModelError(f"external data of '{name}' has no usable location", got=repr(location))
        if Path(location).is_absolute() or ".." in Path(location).parts:
            raise ModelError(problem, got=f"the path '{location}'", expected=expected)
        try:
            folder, file = inside.resolve(), (inside / location).resolve()
        except (OSError, RuntimeError) as error:  # a loop of links
            raise ModelError(problem, got=str(error), expected=expected) from error
        if not file.is_relative_to(folder):
            hint = "`cp -L` to copy the linked file into the folder"
            raise ModelError(problem, got=f"a link to '{file}'", expected=expected, hint=hint)
        return file


def _mapped_tensor(tensor: ir.TensorProtocol, mapping: mmap.mmap | bytes, offset: int) -> ir.TensorProtocol:
    shape = tensor.shape.numpy()
    if tensor.dtype.bitwidth < 8:
        packed = np.frombuffer(mapping, np.uint8, _size_bytes(tensor), offset)
        return ir.PackedTensor(packed, tensor.dtype, shape=shape, name=tensor.name)
    array = np.frombuffer(mapping, tensor.dtype.numpy().newbyteorder("<"), math.prod(shape), offset)
    return ir.Tensor(array.reshape(shape), tensor.dtype, name=tensor.name)


def _loaded(tensor: ir.TensorProtocol, files: _ExternalFiles) -> ir.TensorProtocol:
    if isinstance(tensor, ir.ExternalTensor):
        return files.tensor(tensor)
    if isinstance(tensor, ir.StringTensor):
        return tensor
    try:
        return ir.Tensor(tensor.numpy(), tensor.dtype, name=tensor.name)
    except (ValueError, TypeError, OverflowError) as error:
        raise ModelError(f"cannot read the data of tensor '{tensor.name}'", got=str(error)) from error


def _initializers(graph: ir.Model) -> Iterator[tuple[ir.Value, ir.TensorProtocol]]:
    for part in graph.graphs():
        for value in part.initializers.values():
            if value.const_value is not None:
                yield value, value.const_value


def _attach_attributes(node: ir.Node, files: _ExternalFiles) -> None:
    for name, attribute in list(node.attributes.items()):
        if attribute.is_ref():
            continue
        value: Any = attribute.value
        if attribute.type == ir.AttributeType.TENSOR:
            node.attributes[name] = ir.AttrTensor(name, _loaded(value, files))
        elif attribute.type == ir.AttributeType.TENSORS:
            node.attributes[name] = ir.AttrTensors(name, [_loaded(tensor, files) for tensor in value])


def _size_bytes(tensor: ir.TensorProtocol) -> int:
    return -(-math.prod(tensor.shape.numpy()) * tensor.dtype.bitwidth // 8)


def _describe(tensor: ir.TensorProtocol) -> str:
    return f"{tensor.dtype.name.lower()} {list(tensor.shape.numpy())}"
