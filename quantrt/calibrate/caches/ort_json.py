# SPDX-License-Identifier: Apache-2.0
"""Calibration caches in JSON of ONNX Runtime's own quantizer: tensor -> its lowest and its highest value.

`quantize_static(..., calibration_cache_path=P)` writes P (onnxruntime/quantization/calibrate.py,
`save_tensors_data`), and `write_calibration_table` a calibration.json beside its tables:

    {"CLS": "TensorsData", "data": {"image": {"CLS": "TensorData",
        "lowest": {"CLS": "numpy.array", "data": [0.0], "dtype": "float32"}, "highest": 1.0}}}

A table has the tensors without what is around them. A bound is a number, or an array with one of each
channel.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from quantrt.errors import DataError

__all__ = ["JSON_TABLE", "SYMMETRIC_NOTE", "read_json_table"]

JSON_TABLE = "ONNX Runtime calibration cache (JSON)"

SYMMETRIC_NOTE = (
    "of each range the larger side counts, for codes on both sides of zero: ranges of calibration data have "
    "a zero point where that is better"
)


def read_json_table(data: bytes, name: str) -> dict[str, float]:
    """The largest magnitude of every tensor.

    Raises:
        DataError: it is no such file, or damaged; names the tensor.
    """
    try:
        document = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise _no_cache(name, str(error)) from error
    tensors = document.get("data") if document.get("CLS") == "TensorsData" else document
    if not isinstance(tensors, Mapping) or not all(isinstance(row, Mapping) for row in tensors.values()):
        raise _no_cache(name, f"keys {', '.join(list(document)[:4])}")
    return {tensor: max(map(abs, _bounds(row, tensor, name))) for tensor, row in tensors.items()}


def _bounds(row: Mapping[str, Any], tensor: str, name: str) -> list[float]:
    """Both, of every channel."""
    found = [bound for side in ("lowest", "highest") for bound in _numbers(row.get(side))]
    if len(found) < 2 or not tensor.isprintable() or not tensor:
        raise _no_cache(name, f"'{tensor}' without lowest and highest values")
    return found


def _numbers(bound: Any) -> list[float]:
    """A number, or what an array in JSON holds; nothing of anything else."""
    values = bound.get("data") if isinstance(bound, Mapping) else bound
    rows = values if isinstance(values, list) else [values]
    return [float(value) for value in rows if isinstance(value, int | float)]


def _no_cache(name: str, got: str) -> DataError:
    return DataError(
        f"cannot read '{name}': it is no calibration cache of ONNX Runtime, or damaged",
        got=got[:80],
        expected="what quantize_static(..., calibration_cache_path=...) writes",
    )
