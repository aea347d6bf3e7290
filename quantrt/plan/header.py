# SPDX-License-Identifier: Apache-2.0
"""A plan as the JSON header of an engine file, and back; weights apart.

What is long and alike from layer to layer is one compressed field, "packed": base64 of zlib of JSON.
"""

from __future__ import annotations

import base64
import dataclasses
import json
import math
import zlib
from collections.abc import Mapping
from typing import Any

from quantrt.errors import InternalError
from quantrt.ir.layout import LAYOUTS
from quantrt.ir.tensor_spec import Dim, TensorSpec
from quantrt.model.model import Fingerprint
from quantrt.plan.json_fields import as_text, as_truth
from quantrt.plan.plan import ExecOptions, Layer, LibraryModel, Plan

__all__ = ["header_of", "plan_from_header"]

HINTS = ("latency", "throughput")
FLOAT_PRECISIONS = ("fp32", "fp16", "bf16")

PACKED = "packed"

MAX_UNPACKED_BYTES = 100_000_000
"""As long as a header may be that is not compressed."""


def header_of(plan: Plan) -> dict[str, Any]:
    """Everything of the plan but its model's bytes, JSON-ready."""
    return {
        "library": plan.model.library,
        "options": dataclasses.asdict(plan.options),
        "inputs": [_spec_row(spec) for spec in plan.inputs],
        "outputs": [_spec_row(spec) for spec in plan.outputs],
        "precision": plan.precision,
        "is_calibrated": plan.is_calibrated,
        "fingerprint": dataclasses.asdict(plan.fingerprint),
        "device": dict(plan.device),
        PACKED: _packed(
            {
                "layers": [
                    [row.name, row.op_type, row.precision, row.reason, list(row.sources)]
                    for row in plan.layers
                ],
                "report": dict(plan.report),
            }
        ),
    }


def plan_from_header(header: Mapping[str, Any], model: LibraryModel) -> Plan:
    """The plan that `header_of` described, around `model`.

    Raises:
        KeyError, TypeError, ValueError: the header lacks a field or has one of another kind.
    """
    if PACKED in header:
        header = {**_unpacked(as_text(header[PACKED])), **header}
    return Plan(
        model=model,
        options=_options(**header["options"]),
        inputs=tuple(_spec(row) for row in header["inputs"]),
        outputs=tuple(_spec(row) for row in header["outputs"]),
        precision=as_text(header["precision"]),
        layers=tuple(_layer(row) for row in header["layers"]),
        fingerprint=Fingerprint(**header["fingerprint"]),
        device=dict(header["device"]),
        is_calibrated=as_truth(header["is_calibrated"]),
        report=dict(header["report"]),
    )


def _packed(fields: Mapping[str, Any]) -> str:
    try:
        text = json.dumps(fields, allow_nan=False, separators=(",", ":"))
    except (TypeError, ValueError) as error:
        raise InternalError("the header of an engine file is not JSON", got=str(error)) from error
    return base64.b64encode(zlib.compress(text.encode(), zlib.Z_BEST_COMPRESSION)).decode()


def _unpacked(text: str) -> Mapping[str, Any]:
    """The fields that `_packed` took.

    Raises:
        ValueError: they are damaged, or longer than a header may be.
    """
    reader = zlib.decompressobj()
    try:
        raw = reader.decompress(base64.b64decode(text, validate=True), MAX_UNPACKED_BYTES)
    except zlib.error as error:
        raise ValueError(str(error)) from error
    if not reader.eof or reader.unused_data:
        raise ValueError("its compressed part is cut off, or does not end where it should")
    return dict(json.loads(raw))


def _options(
    *,
    threads: Any,
    hint: Any,
    float_precision: Any,
    keeps_floats: Any = False,
    one_thread_shapes: Any = None,
) -> ExecOptions:
    if threads is not None and (type(threads) is not int or threads < 1):
        raise TypeError(f"a number of threads is positive or null, not {threads!r}")
    if hint not in HINTS or float_precision not in FLOAT_PRECISIONS:
        raise ValueError(f"no such execution options: {hint!r}, {float_precision!r}")
    return ExecOptions(
        threads=threads,
        hint=hint,
        float_precision=float_precision,
        keeps_floats=as_truth(keeps_floats),
        one_thread_shapes=None if one_thread_shapes is None else tuple(map(_sizes, one_thread_shapes)),
    )


def _sizes(shape: Any) -> tuple[int, ...]:
    if isinstance(shape, list) and all(type(size) is int and size >= 0 for size in shape):
        return tuple(shape)
    raise TypeError(f"a shape is a list of sizes, not {shape!r}")


def _spec_row(spec: TensorSpec) -> list[Any]:
    """Name, type and sizes; behind them scale and layout, where there is either."""
    row = [spec.name, spec.dtype, None if spec.shape is None else list(spec.shape)]
    return row if spec.scale is None and not spec.layout else [*row, spec.scale, spec.layout]


def _spec(row: Any) -> TensorSpec:
    name, dtype, dims, scale, layout = row if len(row) == 5 else (*row, None, "")
    if scale is not None and (not isinstance(scale, float) or not 0.0 < scale < math.inf):
        raise TypeError(f"a scale is a number above zero, not {scale!r}")
    if layout and layout not in {known.name for known in LAYOUTS}:
        raise ValueError(f"no such layout: {layout!r}")
    shape = None if dims is None else tuple(_dim(dim) for dim in dims)
    return TensorSpec(as_text(name), as_text(dtype), shape, scale, as_text(layout))


def _dim(dim: Any) -> Dim:
    if dim is None or (isinstance(dim, int | str) and not isinstance(dim, bool)):
        return dim
    raise TypeError(f"a dimension is a number, a name or null, not {dim!r}")


def _layer(row: Any) -> Layer:
    name, op_type, precision, reason, sources = row
    return Layer(
        name=as_text(name),
        op_type=as_text(op_type),
        precision=as_text(precision),
        reason=as_text(reason),
        sources=tuple(as_text(source) for source in sources),
    )
