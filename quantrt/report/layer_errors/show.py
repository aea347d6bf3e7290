# SPDX-License-Identifier: Apache-2.0
"""The three-way comparison as tables and a verdict, for people."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from quantrt.report.quantities import db_text, error_text
from quantrt.report.tables import facts, heading, show, table

__all__ = ["WORST", "show_three_ways"]

WORST = 20
"""Layers shown without being asked for."""

NAMED = 5
"""Layers named in the verdict."""

MOST_RATIO = 0.9
"""The verdict names the layers that make this part of the noise together."""

NUMBERED = re.compile(r"(node_)?[A-Za-z]+_?\d*")
"""What exporters call nodes that have no name."""

LIBRARIES = {"onnxruntime": "ONNX Runtime", "openvino": "OpenVINO", "cuda": "the GPU's program"}


def show_three_ways(data: Mapping[str, Any], *, every: bool) -> None:
    """The layers, those that damage the outputs most first; then the engine, NaN, and the verdict.

    Args:
        every: all layers, in the order they run.
    """
    rows = data["layers"] if every else _worst(data["layers"])
    show("", heading(_title(len(rows), len(data["layers"]), every)))
    figures = ("cosine", "max abs")
    columns = ("layer", "share", "alone", *figures, "so far", *(figures if every else ()), "engine")
    show(_legend(), table(columns, [_cells(row, every=every) for row in rows], fold=("layer",)))
    if len(rows) < len(data["layers"]):
        show(f"and {len(data['layers']) - len(rows)} more, which do less damage: --all shows every layer")
    show("", facts(_facts(data)))
    labels = {row["name"]: _label(row["name"], row["parameter"]) for row in data["layers"]}
    show("", *_verdict(data["damage"], labels))


def _title(shown: int, count: int, every: bool) -> str:
    if every:
        return f"{count} quantized layers, in the order they run"
    return f"the {shown} of {count} quantized layers that damage the outputs most"


def _legend() -> str:
    return (
        "share: of the outputs' noise. alone: SQNR in dB with this layer alone quantized, so far: with all\n"
        "up to it. engine: that of the compiled model, - where the tensor stays inside a kernel"
    )


def _worst(rows: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    return sorted(rows, key=lambda row: (_share(row), row["alone"]["sqnr_db"] or 0.0))[:WORST]


def _share(row: Mapping[str, Any]) -> float:
    """For sorting: the largest share first, then NaN, then layers measured in groups."""
    share = row["share_ratio"]
    return 1.0 if share is None else 0.0 if math.isnan(share) else -float(share)


def _cells(row: Mapping[str, Any], *, every: bool) -> tuple[str, ...]:
    compiled = row["compiled"]
    so_far = _figures(row["quantized"])
    return (
        _label(row["name"], row["parameter"]),
        _percent(row["share_ratio"]),
        *_figures(row["alone"]),
        *(so_far if every else so_far[:1]),
        "-" if compiled is None else db_text(compiled["sqnr_db"]) + ("!" if row["leaves_path"] else ""),
    )


def _label(name: str, parameter: str | None) -> str:
    """A layer's name, with a parameter of it where the name is but an operator with a number."""
    return f"{name} ({parameter})" if parameter and NUMBERED.fullmatch(name) else name


def _figures(row: Mapping[str, float]) -> tuple[str, str, str]:
    return db_text(row["sqnr_db"]), f"{row['cosine']:.4f}", error_text(row["max_abs"])


def _percent(share: float | None) -> str:
    if share is None:
        return ""
    return "?" if math.isnan(share) else f"{100 * share:.1f} %"


def _facts(data: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    engine = data["engine"]
    tolerance = f"{engine['tolerance_ratio']:g} for {engine['float_precision']}"
    library = LIBRARIES[engine["library"]]
    path = next((row for row in data["layers"] if row["leaves_path"]), None)
    if path is None:
        text = f"stays on the fake-quantized path in all {engine['compared']} layers that can be looked at"
        yield library, f"{text} (tolerance {tolerance}, and twice the quantization error so far)"
    else:
        against = path["compiled_against_quantized"]
        far, so_far = db_text(against["sqnr_db"]), db_text(path["quantized"]["sqnr_db"])
        yield (
            library,
            f"LEAVES the fake-quantized path first at '{path['name']}': {far} dB against it, where "
            f"quantization makes {so_far} dB (tolerance {tolerance}); such layers are marked ! above",
        )
    if not data["not_finite"]:
        yield "NaN, infinity", "in no tensor of the three"
    for row in data["not_finite"]:
        yield (
            "NaN, infinity",
            f"{row['where']}: first in '{row['tensor']}' of {row['op_type']} '{row['node']}': "
            f"{row['nan']} NaN and {row['infinite']} infinite of {row['elements']} values",
        )


def _verdict(damage: Mapping[str, Any], labels: Mapping[str, str]) -> Iterator[str]:
    """Which layers destroy the outputs, and what it helps to keep them in floats."""
    total, limit = damage["total_db"], damage["limit_db"]
    where = f"on {damage['samples']} samples"
    if total >= limit:
        yield f"no layer destroys the outputs: {_db(total)} with all of them quantized, {where}"
    else:
        yield (f"the outputs have {_db(total)} with all layers quantized, {where}; {limit:g} dB are wanted")
    yield from _named(damage["worst"], labels)
    if total >= limit or not damage["in_floats"]:
        return
    last = damage["in_floats"][-1]
    options = " ".join(f"--exclude '{name}'" for name in last["layers"])
    yield f"with {len(last['layers'])} of them in floats: {_db(last['sqnr_db'])}"
    yield f"next: quantrt build ... {options}"


def _db(decibels: float) -> str:
    return "no noise" if decibels == math.inf else f"{db_text(decibels)} dB"


def _named(worst: Sequence[Mapping[str, Any]], labels: Mapping[str, str]) -> Iterator[str]:
    """The layers that make most of the noise, with what each does alone."""
    shares = [row["share_ratio"] for row in worst]
    if not shares or any(math.isnan(share) for share in shares):
        return
    count, summed = 0, 0.0
    while count < min(NAMED, len(shares)) and summed < MOST_RATIO:
        summed += shares[count]
        count += 1
    noun = "layer makes" if count == 1 else "layers make"
    yield f"{count} {noun} {100 * summed:.0f} % of their noise:"
    for row in worst[:count]:
        names = [labels[name] for name in row["layers"]]
        name = names[0] if len(names) == 1 else f"{names[0]} ... {names[-1]} ({len(names)} layers)"
        yield f"  {100 * row['share_ratio']:5.1f} %  {name}, {_db(row['alone_db'])} alone"
