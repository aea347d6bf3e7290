# SPDX-License-Identifier: Apache-2.0
"""Made-up layers of an engine, many and with awkward names, and reports of them."""

from typing import Any

import numpy as np

from quantrt.report.engine_layers.graph import align_layers
from quantrt.report.engine_layers.layer import EngineLayer, Rival, TensorForm
from quantrt.report.page.engine_view import Measured, engine_view
from quantrt.report.report import Report
from tests.plans import make_plan

EVIL = "</script><img src=x onerror=\"document.title='broken'\"> & 'quoted' \u2028 \u00e9"
"""What would end a script, start another, or need an escape."""

GRID_ROW = ["t", "uint8", 0, 255, 0.01, 3, -0.03, 4.2, 0.002, 1e-4, "A" + "8" * 40 + "BCDEFGH"]
COLUMNS = (
    "name",
    "dtype",
    "qmin",
    "qmax",
    "scale",
    "zero_point",
    "min",
    "max",
    "clipped_ratio",
    "noise_ratio",
)


def form(name: str, dtype: str = "int8") -> TensorForm:
    return TensorForm(name=name, dims=(1, "N", 4), dtype=dtype, layout="row major")


def many_layers(count: int, *, is_float: bool = False) -> tuple[EngineLayer, ...]:
    """A chain with a skip around every fifth layer; every seventh is FP32; times grow.

    A float one takes half as long and twice as long in turns.
    """
    rng = np.random.default_rng(count)
    layers = []
    for place in range(count):
        read = [f"t{place - 1}"] if place else ["image"]
        read += [f"t{place - 5}"] if place % 5 == 0 and place > 5 else []
        precision = "fp32" if is_float or place % 7 == 0 else "int8"
        factor = (0.5, 2.0)[place % 2] if is_float else 1.0
        layers.append(
            EngineLayer(
                name=f"/block.{place}/op {EVIL}" if place == 3 else f"/block.{place}/op",
                kind=("Conv", "Gemm", "Rows", "Pool")[place % 4],
                nodes=(f"node {place}",),
                sources=(f"node {place}", f"norm {place}"),
                precision=precision,
                computes_in=precision,
                reason=EVIL,
                tactic="triton: gemm 64x32",
                rivals=(Rival(name="cublaslt: 3", median_us=place + 2.0, reason="slower"),),
                median_us=factor * (place + 1),
                bytes_moved=int(rng.integers(1_000, 1_000_000)),
                operations=int(rng.integers(1_000, 10**9)),
                inputs=tuple(form(name, "float32" if precision == "fp32" else "int8") for name in read),
                outputs=(form(f"t{place}"),),
                weights={"int8": 1000},
                attributes={"strides": [1, 2]},
            )
        )
    return tuple(layers)


def latency(center_ms: float) -> dict[str, Any]:
    rng = np.random.default_rng(3)
    counts = rng.integers(0, 9, 40).tolist()
    keys = ("median", "mean", "p20", "p80", "p95", "p99", "min", "max")
    bins = {"lo_ms": center_ms * 0.9, "hi_ms": center_ms * 1.2, "counts": counts, "above": 2}
    return {**{f"{key}_ms": center_ms for key in keys}, "runs": sum(counts) + 2, "histogram": bins}


def candidate(name: str, status: str, **fields: Any) -> dict[str, Any]:
    library, precision = name.split()
    row = {
        "name": name,
        "library": library,
        "precision": precision,
        "float_precision": "fp32",
        "status": status,
    }
    return {**row, "reason": EVIL, "size_bytes": 1000, "accuracy": None, "against_float": None, **fields}


def build_report(*, tensors: int = 0) -> dict[str, Any]:
    """As a build of a quantized engine leaves it."""
    pair = {"ratio": 0.5, "lo": 0.4, "hi": 0.6, "rounds": 9}
    accuracy = {"metric": "top1", "float_score": 0.9, "score": 0.9, "drop_ratio": 0.0, "sqnr_db": 40.0}
    accuracy["samples"] = 9
    verdict = {"shipped": "lib int8", "baseline": "lib fp32", "reason": EVIL, "checked_on": "validation data"}
    return {
        "model": {"path": "model.onnx", "file_bytes": 5000, "changes": []},
        "config": {"budget": {"max_drop_ratio": 0.01}},
        "calibration": {"samples": 8, "is_random": False, "notes": [EVIL]},
        "candidates": [
            candidate("lib int8", "shipped", latency=latency(1.0), accuracy=accuracy, against_float=pair),
            candidate("lib fp32", "baseline", latency=latency(2.0)),
            {"name": "other int8", "status": "rejected", "reason": "no kernel"},
        ],
        "verdict": verdict,
        "notes": [],
        "tensors": {
            "columns": [*COLUMNS, "bins"],
            "rows": [[f"{EVIL} {i}", *GRID_ROW[1:]] for i in range(tensors)],
        },
    }


def made_up_view(layers: tuple[EngineLayer, ...], name: str, *, tensors: int = 0) -> dict[str, Any]:
    plan = make_plan(
        "onnxruntime", report=build_report(tensors=tensors), device={"cpu": "A", "available_cores": 2}
    )
    measured = Measured(None, plan.device, why_not="it was not to be run")
    return engine_view(plan, layers, measured, name=name, file_bytes=1234, notes=(EVIL,))


def made_up_report(*counts: int, tensors: int = 0) -> Report:
    """A report of an engine per count; the first is quantized, the second a float one."""
    sides = [many_layers(count, is_float=bool(side)) for side, count in enumerate(counts)]
    views = [made_up_view(layers, f"{side} {EVIL}.qrt", tensors=tensors) for side, layers in enumerate(sides)]
    aligned = align_layers(*sides) if len(sides) == 2 else ()
    rows = [[list(row.names), list(row.left), list(row.right)] for row in aligned]
    return Report({"version": 1, "quantrt": "0", "engines": views, "aligned": rows})
