# SPDX-License-Identifier: Apache-2.0
"""What is in the program of an engine for a GPU: its regions, their tactics, kernels and memory."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from quantrt.plan.plan import LibraryModel
from quantrt.plan.program import Program
from quantrt.plan.program_json import program_from_model
from quantrt.report.quantities import bytes_text
from quantrt.report.tables import facts, show, table
from quantrt.runtime.profile_check import PROFILES

__all__ = ["coded_attention", "describe_program", "node_tactics", "show_program"]

WITHOUT_WORK = ("view", "host")
"""Runners of steps that do nothing on the GPU."""

IN_FLOATS = frozenset(("dequantized", "halves"))
"""Words in the names of tactics that compute with codes in floats."""

COSTLY_ROWS = 12
"""Regions that are shown without being asked for, the longest first."""


def describe_program(model: LibraryModel, float_precision: str) -> dict[str, Any]:
    """JSON-ready facts of the program in a model of library "cuda"; needs no GPU, torch or Triton.

    Args:
        float_precision: of what is not in 8 bits.

    Raises:
        ModelError: the content is not a program.
    """
    program = program_from_model(model)
    notes = program.notes
    runners: dict[str, list[str]] = {}
    for step in program.steps:
        runners.setdefault(step.region, []).append(step.runner)
    rows = notes.get("regions", {})
    coded_bytes = sum(weight.nbytes for weight in program.coded.values())
    return {
        "regions": [_region(name, rows.get(name, {}), runners[name], float_precision) for name in runners],
        "mismatches": [
            {"pattern": pattern, "reason": reason, "node": node}
            for pattern, reason, node in notes.get("mismatches", ())
        ],
        "kernels": _kernels(program),
        "weight_bytes": sum(array.nbytes for array in program.weights.values()) + coded_bytes,
        "coded_weight_bytes": coded_bytes,
        "steps": len(program.steps),
        "profiles": list(notes.get(PROFILES, ())),
        "compile_s": notes.get("compile_s"),
        "timing_s": notes.get("timing_s"),
        "notes": list(notes.get("tuning", ())),
    }


def node_tactics(model: LibraryModel) -> dict[str, str]:
    """What computes each node that is in a region with a tactic, one phrase, by the name of the node."""
    found = {}
    for name, row in program_from_model(model).notes.get("regions", {}).items():
        nodes, tactic = row["nodes"], row["tactic"]
        if tactic is None:
            continue
        time = "" if row["median_us"] is None else f", {row['median_us']:.1f} us"
        place = f"region '{name}' of {len(nodes)} nodes" if len(nodes) > 1 else "a region of its own"
        found.update(dict.fromkeys(nodes, f"{tactic}{time} ({place})"))
    return found


def coded_attention(model: LibraryModel) -> dict[str, str]:
    """The nodes of attention that makes codes of the floats that it reads, with the precision of these."""
    rows = program_from_model(model).notes.get("regions", {}).values()
    coded = [row for row in rows if row.get("formula") == "Attention" and row.get("codes")]
    return {node: row["codes"] for row in coded for node in row["nodes"]}


def show_program(data: Mapping[str, Any], memory: Mapping[str, Any] | None, *, layers: bool) -> None:
    """The facts as tables: the regions that take longest; with `layers` all, and what was not fused.

    Args:
        memory: what CudaExecutor.memory_report said when the engine was built; None when that is not known.
    """
    regions = data["regions"] if layers else _costly(data["regions"])
    columns = ("region", "formula", "precision", "tactic", "us", "from")
    rows = [
        (
            row["name"],
            row["formula"],
            _precision_text(row),
            row["tactic"] or "",
            "" if row["median_us"] is None else f"{row['median_us']:.1f}",
            row["origin"] or "",
        )
        for row in regions
    ]
    show("", table(columns, rows, left=("formula", "precision", "tactic", "from"), fold=("region", "tactic")))
    left_out = len(data["regions"]) - len(regions)
    if left_out:
        show(f"and {left_out} more, which are shorter or not timed: --layers lists all")
    show("", facts([*_pairs(data, memory), *(("note", note) for note in data["notes"])]))
    if layers and data["mismatches"]:
        missed = [(row["node"], row["pattern"], row["reason"]) for row in data["mismatches"]]
        headers = ("node", "not fused as", "because")
        show("", table(headers, missed, left=("not fused as", "because"), fold=("node", "because")))


def _region(name: str, row: Mapping[str, Any], runners: list[str], float_precision: str) -> dict[str, Any]:
    formula = row.get("formula") or runners[0]
    works = formula not in WITHOUT_WORK
    codes = row.get("codes") or ("int8" if row.get("is_int8") else "")  # as engines before fp8 say it
    is_in_floats = not IN_FLOATS.isdisjoint(str(row.get("tactic") or "").split())
    return {
        "name": name,
        "formula": formula,
        "nodes": list(row.get("nodes", ())),
        "precision": codes or (float_precision if works else None),
        "computes_in": (not is_in_floats and codes) or (float_precision if works else None),
        "runners": runners,
        "tactic": row.get("tactic"),
        "median_us": row.get("median_us"),
        "origin": row.get("origin"),
    }


def _precision_text(row: Mapping[str, Any]) -> str:
    """Both, where codes are computed with in floats."""
    precision, computes_in = row["precision"] or "", row["computes_in"] or ""
    return precision if computes_in in ("", precision) else f"{precision} in {computes_in}"


def _kernels(program: Program) -> dict[str, Any]:
    cubins = [
        (capability, cubin)
        for kernel in program.kernels.values()
        for capability, cubin in kernel.cubins.items()
    ]
    return {
        "count": len(program.kernels),
        "bytes": sum(len(cubin) for _, cubin in cubins),
        "capabilities": sorted({capability for capability, _ in cubins}),
    }


def _costly(regions: list[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """The longest of the timed regions; all of them when few are left out."""
    if len(regions) <= COSTLY_ROWS:
        return regions
    timed = [row for row in regions if row["median_us"] is not None]
    return sorted(timed, key=lambda row: -float(row["median_us"]))[:COSTLY_ROWS]


def _pairs(data: Mapping[str, Any], memory: Mapping[str, Any] | None) -> list[tuple[str, str]]:
    kernels = data["kernels"]
    targets = ", ".join(f"sm_{capability}" for capability in kernels["capabilities"]) or "no GPU"
    timed = [row for row in data["regions"] if row["median_us"] is not None]
    origins = Counter(str(row["origin"]) for row in timed)
    pairs = [
        ("steps", f"{data['steps']} in {len(data['regions'])} regions; fusions that did not happen: "
                  f"{len(data['mismatches'])}"),
        (
            "times",
            f"{sum(row['median_us'] for row in timed):,.1f} us together, of "
            + (", ".join(f"{count} {origin}" for origin, count in sorted(origins.items())) or "no region"),
        ),
        ("kernels", f"{kernels['count']}, {bytes_text(kernels['bytes'])} of machine code for {targets}"),
        ("weights", bytes_text(data["weight_bytes"]) + _coded_text(data["coded_weight_bytes"])),
    ]  # fmt: skip
    pairs += [("shapes", _profile_text(profile)) for profile in data["profiles"]]
    if memory is not None:
        pairs.append(
            (
                "activations",
                f"{bytes_text(memory['memory_after_bytes'])} in one arena, "
                f"{bytes_text(memory['memory_before_bytes'])} if each had its own; "
                f"{bytes_text(memory['pool_bytes'])} for libraries",
            )
        )
    return pairs


def _coded_text(coded_bytes: int) -> str:
    """What of the weights is read in another type than it is held in."""
    return f", {bytes_text(coded_bytes)} of them codes that are multiplied as floats" if coded_bytes else ""


def _profile_text(profile: Mapping[str, list[list[int]]]) -> str:
    """Least, best and largest shapes of every input, as --shapes takes them."""
    texts = [":".join("x".join(map(str, shape)) for shape in shapes) for shapes in profile.values()]
    return ",".join(f"{name}={text}" for name, text in zip(profile, texts, strict=True))
