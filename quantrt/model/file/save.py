# SPDX-License-Identifier: Apache-2.0
"""Graph -> ONNX file, written wholly or not at all, the weights streamed from where they are."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import BinaryIO

import numpy as np
import onnx
import onnx_ir as ir

from quantrt.errors import DeviceError
from quantrt.ir.atomic import replace_file
from quantrt.ir.mapped import stream_bytes
from quantrt.ir.split import split_weights
from quantrt.model.file.wire import GRAPH_FIELD, INITIALIZER_FIELD, RAW_DATA_FIELD, delimited_header

__all__ = ["MAX_PROTOBUF_BYTES", "save_model"]

MAX_PROTOBUF_BYTES = 2**31 - 1
"""What a protobuf may hold; https://protobuf.dev/programming-guides/proto-limits."""

_ALIGNMENT_BYTES = 4096  # external data starts on a page, so that it can be mapped where it lies
_STREAMED_BYTES = 4096


def save_model(graph: ir.Model, path: Path, *, max_file_bytes: int = MAX_PROTOBUF_BYTES) -> None:
    """Write `graph` to `path`; its weights beside it, in `<name>.data`, where one file cannot hold them.

    Args:
        max_file_bytes: the largest single file; a smaller bound asks for external data earlier.

    Raises:
        DeviceError: the path cannot be written or the disk is full; nothing is left behind.
        ModelError: what cannot be external exceeds 2 GiB.
    """
    if path.is_dir():
        raise DeviceError(f"cannot write '{path}'", got="a folder", expected="a file name")
    protobuf, weights = split_weights(graph, min_bytes=_STREAMED_BYTES)
    model = onnx.ModelProto.FromString(protobuf)
    size_bytes = len(protobuf) + sum(array.nbytes for array in weights.values())
    if size_bytes <= max_file_bytes:
        with replace_file(path) as file:
            _write_single(file, model, weights)
        return
    data_path = path.with_name(path.name + ".data")
    with replace_file(data_path) as data_file, replace_file(path) as file:  # both or neither
        _write_data(data_file, model, weights, data_path.name)
        data_file.flush()
        file.write(model.SerializeToString())


def _write_single(file: BinaryIO, model: onnx.ModelProto, weights: Mapping[str, np.ndarray]) -> None:
    """The protobuf with every weight in its place, put together field by field."""
    headers: list[tuple[bytes, np.ndarray]] = []
    small: list[onnx.TensorProto] = []
    for tensor in model.graph.initializer:
        if tensor.name not in weights:
            small.append(tensor)
            continue
        array = weights[tensor.name]
        _forget_location(tensor)
        data_header = delimited_header(RAW_DATA_FIELD, array.nbytes)
        content = tensor.SerializeToString() + data_header
        headers.append((delimited_header(INITIALIZER_FIELD, len(content) + array.nbytes) + content, array))
    graph = onnx.GraphProto()
    graph.CopyFrom(model.graph)
    del graph.initializer[:]
    graph.initializer.extend(small)
    # OpenVINO knows an ONNX file by its first three fields, and wants no two of a kind among them; a model
    # with operators of two domains has two opset_import, so these come after the graph.
    head = onnx.ModelProto(ir_version=model.ir_version)
    model.ClearField("ir_version")
    model.ClearField("graph")
    graph_bytes = graph.SerializeToString()
    rest_bytes = sum(len(header) + array.nbytes for header, array in headers)
    file.write(head.SerializeToString())
    file.write(delimited_header(GRAPH_FIELD, len(graph_bytes) + rest_bytes))
    file.write(graph_bytes)
    for header, array in headers:
        file.write(header)
        _write_array(file, array)
    file.write(model.SerializeToString())


def _write_data(
    file: BinaryIO, model: onnx.ModelProto, weights: Mapping[str, np.ndarray], location: str
) -> None:
    """The arrays one after another, and their places into `model`."""
    for tensor in model.graph.initializer:
        if tensor.name not in weights:
            continue
        file.write(b"\0" * (-file.tell() % _ALIGNMENT_BYTES))
        array = weights[tensor.name]
        _forget_location(tensor)
        tensor.data_location = onnx.TensorProto.EXTERNAL
        for key, value in (("location", location), ("offset", file.tell()), ("length", array.nbytes)):
            tensor.external_data.add(key=key, value=str(value))
        _write_array(file, array)


def _forget_location(tensor: onnx.TensorProto) -> None:
    del tensor.external_data[:]
    tensor.ClearField("data_location")


def _write_array(file: BinaryIO, array: np.ndarray) -> None:
    for chunk in stream_bytes(array):
        file.write(chunk)
