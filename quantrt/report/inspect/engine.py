# SPDX-License-Identifier: Apache-2.0
"""What is in an engine."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from quantrt.device import describe_device
from quantrt.plan.plan import Plan
from quantrt.plan.program_json import program_from_model
from quantrt.report.built.mixed import show_mixed
from quantrt.report.built.shipped_row import shipped_row
from quantrt.report.built.text import candidates_table, reason_text, verdict_table
from quantrt.report.device_text import device_line
from quantrt.report.engine_layers.program import describe_program, show_program
from quantrt.report.inspect.conversions import conversions_of_program, show_conversions
from quantrt.report.quantities import bytes_text, memory_text
from quantrt.report.ranges.cache import show_missing
from quantrt.report.tables import facts, heading, show, table
from quantrt.runtime.notes import engine_notes

__all__ = ["describe_engine", "show_engine"]


def describe_engine(plan: Plan, path: Path) -> dict[str, Any]:
    """JSON-ready facts of an engine file; needs neither its library nor its device."""
    is_cuda = plan.model.library == "cuda"
    return {
        "kind": "engine",
        "path": str(path),
        "file_bytes": path.stat().st_size,
        "model_bytes": plan.model.size_bytes,
        "precision": plan.precision,
        "library": plan.model.library,
        "is_calibrated": plan.is_calibrated,
        "options": {
            "threads": plan.options.threads,
            "hint": plan.options.hint,
            "float_precision": plan.options.float_precision,
            "one_thread_shapes": plan.options.one_thread_shapes,
        },
        "inputs": [str(spec) for spec in plan.inputs],
        "outputs": [str(spec) for spec in plan.outputs],
        "fingerprint": {"graph": plan.fingerprint.graph, "weights": plan.fingerprint.weights},
        "device": dict(plan.device),
        "precision_counts": dict(Counter(layer.precision for layer in plan.layers).most_common()),
        "layers": [
            {
                "name": layer.name,
                "op_type": layer.op_type,
                "precision": layer.precision,
                "reason": layer.reason,
                "sources": list(layer.sources),
            }
            for layer in plan.layers
        ],
        "notes": list(engine_notes(plan, describe_device(with_gpu=is_cuda))),
        "program": describe_program(plan.model, plan.options.float_precision) if is_cuda else None,
        "conversions": conversions_of_program(program_from_model(plan.model)) if is_cuda else None,
        "report": dict(plan.report),
    }


def show_engine(data: Mapping[str, Any], *, layers: bool = False) -> None:
    """The facts as tables; with `layers`, every layer too."""
    mark = "" if data["is_calibrated"] else ", uncalibrated (random data)"
    show(heading(f"{data['path']}: {data['precision']} engine on {data['library']}{mark}"))
    show(facts([*_pairs(data), *(("note", note) for note in data["notes"])]))
    report = data["report"]
    if "verdict" in report:
        show("", verdict_table(report, data["file_bytes"], data["precision_counts"]))
        memory = [("peak memory", memory_text(report["peak_memory"]))] if report.get("peak_memory") else []
        why = ("why", reason_text(report))
        show("", candidates_table(report), "", facts([why, *memory, *_notes(data)]))
    show_mixed(report.get("mixed"), layers=layers)
    cache = report.get("calibration_cache") or {}
    if "estimated_cost" in cache:  # since costs are told
        show_missing(cache, layers)
    if data["program"] is not None:
        show_program(data["program"], _memory(report), layers=layers)
        if data["conversions"] is not None:
            show_conversions("conversions", data["conversions"], layers=layers)
    if layers:
        rows = [(row["name"], row["op_type"], row["precision"], row["reason"]) for row in data["layers"]]
        columns = ("layer", "operator", "precision", "why")
        show("", table(columns, rows, left=("operator", "precision"), fold=("layer", "why")))


def _memory(report: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """What the candidate that was shipped took of the GPU when it was timed."""
    return (shipped_row(report) or {}).get("memory")


def _notes(data: Mapping[str, Any]) -> list[tuple[str, str]]:
    calibration = data["report"].get("calibration") or {"notes": []}
    return [("note", note) for note in (*calibration["notes"], *data["report"]["notes"])]


def _pairs(data: Mapping[str, Any]) -> list[tuple[str, str]]:
    counts = ", ".join(f"{count} {precision}" for precision, count in data["precision_counts"].items())
    options = data["options"]
    if data["library"] == "cuda":
        threads = "CUDA graphs"
    else:
        threads = "all cores" if options["threads"] is None else f"{options['threads']} threads"
        alone = options["one_thread_shapes"]
        if alone is not None:
            threads += f", one for inputs {' '.join('x'.join(map(str, shape)) for shape in alone)}"
    return [
        *(("input", text) for text in data["inputs"]),
        *(("output", text) for text in data["outputs"]),
        ("layers", counts),
        (
            "size",
            f"{bytes_text(data['file_bytes'])} on disk, {bytes_text(data['model_bytes'])} of it the model",
        ),
        ("runs with", f"{threads}, for {options['hint']}, float layers in {options['float_precision']}"),
        ("timed on", device_line(data["device"], data["library"])),
        ("graph", data["fingerprint"]["graph"]),
        ("weights", data["fingerprint"]["weights"]),
    ]
