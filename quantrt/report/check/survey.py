# SPDX-License-Identifier: Apache-2.0
"""What GPUs can do with the regions of a model, as JSON and as tables."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from quantrt.dtypes import CODE_PRECISIONS
from quantrt.gpu import GpuFacts
from quantrt.regions.region import Nodes
from quantrt.report.quantities import bytes_text
from quantrt.report.tables import facts, heading, show, table
from quantrt.tactics.cuda.survey import Finding, Survey

__all__ = ["describe_survey", "show_survey"]


def describe_survey(
    found: Survey, *, path: str, precision: str, shapes: Mapping[str, Sequence[int]]
) -> dict[str, Any]:
    """JSON-ready data: the facts of every GPU, the counts, and every region's tactics and refusals."""
    return {
        "kind": "check",
        "path": path,
        "precision": precision,
        "shapes": {name: list(shape) for name, shape in shapes.items()},
        "devices": [
            {
                "gpu": _gpu(gpu),
                "summary": _summary(findings),
                "regions": [_region(finding) for finding in findings],
            }
            for gpu, findings in found.findings
        ],
        "mismatches": [dataclasses.asdict(mismatch) for mismatch in found.mismatches],
    }


def show_survey(data: Mapping[str, Any]) -> None:
    """One GPU: every region. Several: a line each."""
    shapes = ", ".join(f"{name} {'x'.join(map(str, shape))}" for name, shape in data["shapes"].items())
    show(heading(f"{data['path']} in {data['precision']}: {shapes}"))
    if len(data["devices"]) == 1:
        _show_one(data["devices"][0])
    else:
        _show_all(data["devices"])
    count = len(data["mismatches"])
    if count:
        show("", f"{count} fusion{'s' * (count > 1)} did not happen; --json lists them with their reasons")


def _show_one(device: Mapping[str, Any]) -> None:
    gpu = device["gpu"]
    show(facts((("gpu", _gpu_text(gpu)), ("peaks", _peaks_text(gpu)), ("source", gpu["source"]))))
    notes: dict[str, int] = {}
    rows = [
        (row["name"], row["formula"], row["precision"], _tactics_text(row, notes))
        for row in device["regions"]
        if row["formula"] not in ("View", "Host")
    ]
    columns = ("region", "formula", "precision", "kernels")
    show("", table(columns, rows, left=columns[1:3], fold=("region", "kernels")))
    if notes:
        show("", facts((f"[{number}]", reason) for reason, number in notes.items()))
    show("", _summary_text(device["summary"]))


def _show_all(devices: Sequence[Mapping[str, Any]]) -> None:
    kinds = _codes_of(devices[0]["summary"])
    rows = [
        (
            device["gpu"]["name"],
            _version(device["gpu"]["capability"]),
            *(f"{device['summary'][f'{kind}_with_kernel']} of {device['summary'][kind]}" for kind in kinds),
            f"{device['summary']['float_with_kernel']} of {device['summary']['float']}",
            str(device["summary"]["in_torch"]),
            _main_reason(device["regions"]),
        )
        for device in devices
    ]
    columns = (
        "gpu",
        "capability",
        *(f"{kind} kernels" for kind in kinds),
        "float kernels",
        "in torch",
        "most falls back because",
    )
    show("", table(columns, rows, left=("gpu",), fold=columns[-1:]))


def _region(finding: Finding) -> dict[str, Any]:
    return {
        "name": finding.region.name,
        "formula": type(finding.region.formula).__name__,
        "nodes": list(finding.region.nodes),
        "precision": finding.precision,
        "falls_back": bool(finding.fallback),
        "reason": finding.fallback,
        "legal": [{"source": row.source, "name": row.name} for row in finding.legal],
        "rejected": [dataclasses.asdict(row) for row in finding.rejected],
    }


def _summary(findings: Sequence[Finding]) -> dict[str, int]:
    """How many regions compute, in which precision, and how many of them have a kernel."""
    in_torch = [found for found in findings if isinstance(found.region.formula, Nodes)]
    computed = [found for found in findings if not isinstance(found.region.formula, Nodes)]
    codes = {name: [found for found in computed if found.precision == name] for name in CODE_PRECISIONS}
    floats = [found for found in computed if found.precision not in ("", *CODE_PRECISIONS)]
    return {
        "regions": len(findings),
        **{name: len(rows) for name, rows in codes.items()},
        **{f"{name}_with_kernel": sum(not found.fallback for found in rows) for name, rows in codes.items()},
        "float": len(floats),
        "float_with_kernel": sum(not found.fallback for found in floats),
        "in_torch": len(in_torch),
    }


def _summary_text(summary: Mapping[str, int]) -> str:
    count = summary["in_torch"]
    kinds = _codes_of(summary)
    counts = ", ".join(
        f"{summary[f'{kind}_with_kernel']} of {summary[kind]} {kind} regions" for kind in kinds
    )
    text = (
        f"{counts} and {summary['float_with_kernel']} of {summary['float']} float regions have a kernel; "
        f"{count} region{'s' * (count != 1)} run{'s' * (count == 1)} in torch"
    )
    if all(summary[f"{kind}_with_kernel"] == summary[kind] for kind in kinds):
        return text
    return f"{text}\nit builds there all the same: what falls back is computed in floats, from its codes"


def _codes_of(summary: Mapping[str, int]) -> tuple[str, ...]:
    """The kinds of codes that regions are in; int8 where there are none."""
    return tuple(name for name in CODE_PRECISIONS if summary[name]) or CODE_PRECISIONS[:1]


def _tactics_text(row: Mapping[str, Any], notes: dict[str, int]) -> str:
    """Kernels by source, or what the region falls back to; `notes` numbers the reasons."""
    if row["formula"] == "Nodes":
        return str(row["reason"])
    counts = Counter(tactic["source"] for tactic in row["legal"])
    if not row["falls_back"]:
        return ", ".join(f"{source} {count}" for source, count in counts.items())
    number = notes.setdefault(row["reason"], len(notes) + 1)
    return f"falls back to {', '.join(counts) or 'torch'} [{number}]"


def _main_reason(regions: Sequence[Mapping[str, Any]]) -> str:
    counts = Counter(row["reason"] for row in regions if row["falls_back"] and row["formula"] != "Nodes")
    return str(counts.most_common(1)[0][0]) if counts else ""


def _gpu(gpu: GpuFacts) -> dict[str, Any]:
    return {**dataclasses.asdict(gpu), "aliases": list(gpu.aliases)}


def _gpu_text(gpu: Mapping[str, Any]) -> str:
    return (
        f"{gpu['name']}, compute capability {_version(gpu['capability'])}, {gpu['multiprocessors']} "
        f"multiprocessors, {bytes_text(gpu['memory_bytes'])} at {gpu['bandwidth_gb_s']:g} GB/s"
    )


def _peaks_text(gpu: Mapping[str, Any]) -> str:
    int8 = f"{gpu['int8_tops']:g} TOP/s" if gpu["int8_tops"] else "none"
    fp8 = f", fp8 {gpu['fp8_tflops']:g} TFLOP/s" if gpu["fp8_tflops"] else ""
    return f"fp32 {gpu['fp32_tflops']:g}, fp16 {gpu['fp16_tflops']:g} TFLOP/s, int8 {int8}{fp8}"


def _version(capability: int) -> str:
    return f"{capability // 10}.{capability % 10}"
