# SPDX-License-Identifier: Apache-2.0
"""Outputs and times as trtexec prints and writes them."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from quantrt.ir.atomic import replace_file
from quantrt.ir.tensor_spec import TensorSpec
from quantrt.runtime.query import Query
from quantrt.trtexec.flags.dims import model_shape
from quantrt.trtexec.flags.shapes import shape_text
from quantrt.trtexec.flags.values import Shape

__all__ = ["output_lines", "outputs_json", "raw_name", "times_json", "write_json", "write_raw"]

_RAW_TYPES = {
    "float32": "Float",
    "float16": "Half",
    "bfloat16": "BF16",
    "int8": "Int8",
    "uint8": "UInt8",
    "int32": "Int32",
    "int64": "Int64",
    "bool": "Bool",
}


def output_lines(outputs: Mapping[str, np.ndarray]) -> Iterator[str]:
    """What --dumpOutput prints: a line per row of the last axis."""
    yield "Output Tensors:"
    for name, array in outputs.items():
        yield f"{name}: ({shape_text(array.shape)})"
        for row in array.reshape(-1, array.shape[-1] if array.ndim and array.shape[-1] else 1):
            yield " ".join(_value_text(value) for value in row)


def outputs_json(outputs: Mapping[str, np.ndarray]) -> list[dict[str, Any]]:
    """What --exportOutput writes."""
    return [
        {"name": name, "dimensions": shape_text(array.shape), "values": [_plain(v) for v in array.ravel()]}
        for name, array in outputs.items()
    ]


def times_json(queries: Sequence[Query]) -> list[dict[str, float]]:
    """What --exportTimes writes, the warm-up left out."""
    return [
        {
            "startEnqMs": query.start_enqueue_ms,
            "endEnqMs": query.end_enqueue_ms,
            "startH2dMs": query.start_h2d_ms,
            "endH2dMs": query.end_h2d_ms,
            "startComputeMs": query.start_compute_ms,
            "endComputeMs": query.end_compute_ms,
            "startD2hMs": query.start_d2h_ms,
            "endD2hMs": query.end_d2h_ms,
            "h2dMs": query.h2d_ms,
            "computeMs": query.compute_ms,
            "d2hMs": query.d2h_ms,
            "latencyMs": query.latency_ms,
        }
        for query in queries
    ]


def write_json(path: Path, document: Any) -> None:
    """Write a document, a row of a list per line.

    Raises:
        DeviceError: the disk is full or the folder may not be written to.
    """
    with replace_file(path) as file:
        if isinstance(document, list):
            rows = "\n, ".join(json.dumps(row) for row in document)
            file.write(f"[\n  {rows}\n]\n".encode())
        else:
            file.write((json.dumps(document, indent=1) + "\n").encode())


def write_raw(
    arrays: Mapping[str, np.ndarray], specs: Sequence[TensorSpec], kind: str, folder: Path
) -> tuple[Path, ...]:
    """Write each array as a raw binary file, as --dumpRawBindingsToFile does.

    A file has the elements as they lie in memory; its name has the dimensions of the model.

    Args:
        specs: of the engine's inputs or outputs.
        kind: "input" or "output".

    Raises:
        DeviceError: as for `write_json`.
    """
    paths = []
    by_name = {spec.name: spec for spec in specs}
    for name, array in arrays.items():
        shape = model_shape(by_name[name], array.shape)
        paths.append(folder / raw_name(name, kind, array.dtype.name, shape))
        with replace_file(paths[-1]) as file:
            file.write(np.ascontiguousarray(array).tobytes())
    return tuple(paths)


def raw_name(name: str, kind: str, dtype: str, shape: Shape) -> str:
    """`images.input.1.3.224.224.Float.raw`; what no file name can hold becomes "_"."""
    dims = ".".join(map(str, shape)) or "scalar"
    safe = re.sub(r"[^A-Za-z0-9._-]", "_", name)
    return f"{safe}.{kind}.{dims}.{_RAW_TYPES.get(dtype, dtype)}.raw"


def _value_text(value: Any) -> str:
    return f"{float(value):.6g}" if np.asarray(value).dtype.kind in "fV" else str(value)


def _plain(value: Any) -> Any:
    """A number for JSON; one that JSON has no word for as text."""
    found = value.item() if hasattr(value, "item") else value
    if isinstance(found, float) and not math.isfinite(found):
        return str(found)
    return found
