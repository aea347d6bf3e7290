# SPDX-License-Identifier: Apache-2.0
"""One row of the zoo, in a process of its own: `python -m benchmarks.zoo_row GRAPH.onnx.xz ROW.json`.

The row is written after the build, and again when every candidate's outputs have been compared: what a limit
of time ends keeps what it has.
"""

__all__ = ["main"]

import argparse
import json
import lzma
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx

import quantrt
from benchmarks.record import commit
from benchmarks.zoo_case import Feed
from benchmarks.zoo_models import CASES, rows_of
from benchmarks.zoo_weights import filled
from quantrt.calibrate.dataset import open_dataset
from quantrt.config import (
    AssignConfig,
    BenchConfig,
    Budget,
    BuildConfig,
    CalibrationConfig,
    CudaConfig,
    DeviceConfig,
)
from quantrt.errors import QuantRtError
from quantrt.model.for_gpu import for_gpu
from quantrt.model.load import load_model
from quantrt.plan.plan import LibraryModel
from quantrt.plan.program_json import program_from_model
from quantrt.prepare import Job, quantize_for_device
from quantrt.runtime.machine import describe_machine
from quantrt.tactics.candidates import Opener, Rejected, list_specs

CALIBRATED, JUDGED = range(4), (101, 102)
"""Seeds of the samples."""

MOST_REASONS = 6

Array = npt.NDArray[Any]


def main() -> None:
    parser = argparse.ArgumentParser(description="One row of the zoo.")
    parser.add_argument("graph", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--level", type=int, default=0)
    args = parser.parse_args()
    case, exporter = rows_of(CASES)[args.graph.name.split(".onnx")[0]]
    row: dict[str, Any] = {
        "family": case.family,
        "exporter": exporter,
        "commit": commit(),
        "environment": _environment(args.device),
    }
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.onnx"
        model = filled(onnx.load_from_string(lzma.decompress(args.graph.read_bytes())))
        row["nodes"] = len(model.graph.node)
        onnx.save(model, path)
        row["onnx_bytes"] = path.stat().st_size
        taken = {value.name for value in model.graph.input}
        del model
        feeds, judged = (
            [{name: x for name, x in case.feed(seed).items() if name in taken} for seed in seeds]
            for seeds in (CALIBRATED, JUDGED)
        )
        config = _config(args, Path(folder))
        for step in (_build, _compare):
            try:
                row |= step(path, config, feeds, judged)
            except QuantRtError as error:
                row.setdefault("error", f"{type(error).__name__}: {error}")
            args.out.write_text(json.dumps(row))


def _config(args: argparse.Namespace, folder: Path) -> BuildConfig:
    is_gpu = args.device == "cuda"
    return BuildConfig(
        precisions=frozenset({"fp32", "int8"} | ({"fp16"} if is_gpu else set())),
        device=DeviceConfig(device=args.device, threads=None if is_gpu else args.threads),
        cuda=CudaConfig(builder_optimization_level=args.level, timing_cache=str(folder / "timings.json")),
        calibration=CalibrationConfig(method="minmax"),
        budget=Budget(metric="sqnr", max_drop_ratio=1.0),
        assign=AssignConfig(mixed=False, bf16_beside_int8=False),
        bench=BenchConfig(duration_s=1.0, max_duration_s=5.0),
    )


def _build(path: Path, config: BuildConfig, feeds: list[Feed], judged: list[Feed]) -> dict[str, Any]:
    """The build that a user makes."""
    began = time.perf_counter()
    with quantrt.build(path, config=config, calibration=feeds) as engine:
        build_s = time.perf_counter() - began
        rows = engine.report["candidates"]
        found = {
            "build_s": build_s,
            "ships": engine.report["verdict"]["shipped"],
            "ms": {row["name"]: row["latency"]["median_ms"] for row in rows if row.get("latency")},
            "rejected": {row["name"]: row["reason"] for row in rows if row["status"] == "rejected"},
            "notes": list(engine.report["notes"]),
        }
        if config.device.device == "cuda":
            found["program"] = _program_facts(engine.plan.model)
        return found


def _compare(path: Path, config: BuildConfig, feeds: list[Feed], judged: list[Feed]) -> dict[str, Any]:
    """Decibels of every candidate's outputs, and how many products are in codes."""
    import onnxruntime

    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    names = [value.name for value in session.get_outputs()]
    wanted = [dict(zip(names, session.run(names, dict(feed)), strict=True)) for feed in judged]
    is_gpu = config.device.device == "cuda"
    model = for_gpu(load_model(path)) if is_gpu else load_model(path)
    machine = describe_machine("cuda" if is_gpu else "openvino")
    job = Job(model, config, machine, lambda event: None)
    fits = quantize_for_device(job, open_dataset(feeds, model.inputs), None, None).fits
    found: dict[str, Any] = {"sqnr_db": {}, "products": {}}
    with closing(Opener(model, config, feeds[0])) as opener:
        for spec in list_specs(config, machine):
            fitted = fits.get((spec.library, spec.precision))
            if spec.has_codes and (fitted is None or not fitted.model.has_int8):
                continue
            opened = opener.open(spec, fitted)
            if isinstance(opened, Rejected):
                found["sqnr_db"][spec.name] = opened.reason
                continue
            with closing(opened.executor) as executor:
                got = [executor.run(feed) for feed in judged]
            pairs = {name: ([x[name] for x in wanted], [x[name] for x in got]) for name in names}
            floats = {name: pair for name, pair in pairs.items() if pair[0][0].dtype.kind == "f"}
            found["sqnr_db"][spec.name] = {name: _sqnr_db(*pair) for name, pair in floats.items()}
            if is_gpu:
                found["products"][spec.name] = _products(opened.model)
    return found


def _sqnr_db(wanted: list[Array], got: list[Array]) -> float | str | None:
    """Of all samples together; None where all are the same, and a phrase where they cannot be compared."""
    for want, have in zip(wanted, got, strict=True):
        if want.shape != have.shape:
            return f"{have.shape} for {want.shape}"
        if want.dtype.kind == "f" and (np.isfinite(want) != np.isfinite(have)).any():
            return "not finite where FP32 is"
    pairs = [(a.astype(np.float64), b.astype(np.float64)) for a, b in zip(wanted, got, strict=True)]
    finite = [(a[np.isfinite(a)], b[np.isfinite(a)]) for a, b in pairs]
    noise = sum(float(np.square(a - b).sum()) for a, b in finite)
    signal = sum(float(np.square(a).sum()) for a, _ in finite)
    if noise == 0.0:
        return None
    return float(10 * np.log10(max(signal, 1e-30) / noise))


def _products(model: LibraryModel) -> dict[str, int]:
    """How many regions multiply, and how many of them codes."""
    rows = [
        row for row in program_from_model(model).notes["regions"].values() if row["product"] or row["codes"]
    ]
    return {"all": len(rows), "int8": sum(row["codes"] == "int8" for row in rows)}


def _program_facts(model: LibraryModel) -> dict[str, Any]:
    """Where regions run, and why some run in torch or on the host."""
    program = program_from_model(model)
    rows, types = program.notes["regions"], _types_of(program.nodes)
    sources = Counter(row["tactic"].split(":")[0] for row in rows.values() if row["tactic"])
    runners = Counter(step.runner for step in program.steps)
    nodes = [
        name for step in program.steps if step.runner == "nodes" for name in step.options.get("nodes", ())
    ]
    why = {node: reason for _, reason, node in program.notes["mismatches"]}
    in_torch = Counter(types.get(name, "?") for name in nodes)
    reasons = Counter(f"{types.get(name, '?')}: {why[name]}" for name in nodes if name in why)
    slow = [row for row in rows.values() if (row["tactic"] or "").startswith("torch")]
    rejected = Counter(reason for row in slow for reason in _why_not(program.notes["candidates"], row["key"]))
    return {
        "sources": dict(sources),
        "runners": dict(runners),
        "reads_values": sum(step.reads_values for step in program.steps),
        "in_torch": dict(in_torch.most_common(MOST_REASONS)),
        "reasons": [text for text, _ in reasons.most_common(MOST_REASONS)],
        "no_kernel": [text for text, _ in rejected.most_common(MOST_REASONS)],
    }


def _why_not(candidates: dict[str, Any], key: str | None) -> Iterator[str]:
    """Why kernels of a workload that torch runs were not taken."""
    for name, median_us, reason in candidates.get(key or "", ()):
        if median_us is None and not name.startswith("torch"):
            yield f"{name}: {reason}"


def _types_of(nodes: bytes) -> dict[str, str]:
    """Operators of the nodes that run as such, by name."""
    return {node.name: node.op_type for node in onnx.load_from_string(nodes).graph.node} if nodes else {}


def _environment(device: str) -> dict[str, Any]:
    if device == "cuda":
        from benchmarks.cuda.timing import environment  # torch is optional

        return environment()
    from benchmarks.record import environment as of_cpu

    return of_cpu(("onnxruntime", "openvino", "onnx", "onnx-ir", "numpy"))


if __name__ == "__main__":
    main()
