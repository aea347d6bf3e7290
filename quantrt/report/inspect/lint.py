# SPDX-License-Identifier: Apache-2.0
"""Findings about Q/DQ nodes, by rule, and what other places for them would give."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import onnx_ir as ir

from quantrt.errors import ModelError
from quantrt.ir.edit import is_operator
from quantrt.model.load import make_model
from quantrt.quantize.lint.as_given import graph_as_given
from quantrt.quantize.lint.finding import Finding
from quantrt.quantize.lint.pairs import DEQUANTIZE, QUANTIZE
from quantrt.quantize.lint.placement_rules import placement_findings
from quantrt.quantize.lint.tensorrt import tensorrt_findings
from quantrt.quantize.placement.obstacle import is_quantized
from quantrt.quantize.qdq.unquantized import without_pairs
from quantrt.report.inspect.conversions import conversions_of_model
from quantrt.report.tables import facts, heading, show, table, verdict

__all__ = ["describe_lint", "describe_pairs", "show_lint", "show_pairs"]

NAMED = 3
"""Nodes that are named for a rule without being asked for all."""


def describe_pairs(path: Path, conversions: Mapping[str, Any]) -> dict[str, Any] | None:
    """JSON-ready facts about the Q/DQ nodes of a file; None where it has none.

    Args:
        conversions: those of an int8 plan on the file's own pairs.
    """
    graph = graph_as_given(path)
    if not is_quantized(graph.graph):
        return None
    counts = Counter(node.op_type for node in graph.graph)
    return {
        "quantize": counts[QUANTIZE],
        "dequantize": counts[DEQUANTIZE],
        "findings": _rows(placement_findings(graph.graph)),
        "replaced": _replaced(graph, conversions),
    }


def describe_lint(path: Path, target: str) -> dict[str, Any]:
    """JSON-ready findings of a target's rules; it passes when none is an error.

    Raises:
        ModelError: the model is not quantized; or it cannot be read.
    """
    graph = graph_as_given(path)
    rows = _rows(tensorrt_findings(graph.graph))
    if not rows and not any(is_operator(node, QUANTIZE, DEQUANTIZE) for node in graph.graph):
        raise ModelError(
            f"cannot hold '{path}' against the rules of {target}: it is a float model",
            hint=f"`quantrt quantize {path} --target {target} ... -o Q.onnx` first",
        )
    return {
        "kind": "lint",
        "path": str(path),
        "target": target,
        "pairs": sum(is_operator(node, QUANTIZE) for node in graph.graph),
        "errors": sum(row["level"] == "error" for row in rows),
        "advice": sum(row["level"] == "advice" for row in rows),
        "findings": rows,
        "passed": all(row["level"] != "error" for row in rows),
    }


def show_lint(data: Mapping[str, Any], *, layers: bool) -> None:
    """The findings by rule, ending with PASSED or FAILED; with `layers` every node."""
    show(
        heading(f"{data['path']}: {data['pairs']} QuantizeLinear nodes against the rules of {data['target']}")
    )
    _show_findings(data["findings"], layers=layers)
    nodes = f"{data['errors']} {'finding' if data['errors'] == 1 else 'findings'} it refuses a model for"
    show("", verdict(data["passed"], f"{nodes}, {data['advice']} that cost speed or accuracy"))


def show_pairs(data: Mapping[str, Any], *, layers: bool) -> None:
    """Findings about pairs, and what changes in a plan where they are placed anew."""
    total = len(data["findings"])
    text = f"{data['quantize']} QuantizeLinear, {data['dequantize']} DequantizeLinear, {total} findings"
    show("", facts([("Q/DQ", text)]))
    _show_findings(data["findings"], layers=layers)
    rows = [
        (row["what"], str(row["as_given"]), str(row["placed_anew"]))
        for row in data["replaced"]
        if row["as_given"] != row["placed_anew"]
    ]
    if rows:
        columns = ("int8 on a GPU", "as given", "placed anew")
        show("", table(columns, rows, left=("int8 on a GPU",)))


def _show_findings(findings: Sequence[Mapping[str, Any]], *, layers: bool) -> None:
    rules = dict.fromkeys((row["level"], row["rule"]) for row in findings)
    for level, rule in rules:
        rows = [row for row in findings if (row["level"], row["rule"]) == (level, rule)]
        count = f"{len(rows)} {'node' if len(rows) == 1 else 'nodes'}"
        show("", heading(f"{level} {rule}, {count}: {rows[0]['fix']}"))
        if rows[0]["source"]:
            show(f"  {rows[0]['source']}")
        kept = rows if layers else rows[:NAMED]
        show(*(f"  '{row['node']}' ({row['op_type']}): {row['what']}" for row in kept))
        if len(kept) < len(rows):
            show(f"  and {len(rows) - len(kept)} more: --layers lists all")


def _rows(findings: Sequence[Finding]) -> list[dict[str, str]]:
    return [
        {
            "level": found.rule.level,
            "rule": found.rule.name,
            "node": found.node,
            "op_type": found.op_type,
            "what": found.what,
            "fix": found.rule.fix,
            "source": found.rule.source,
        }
        for found in findings
    ]


def _replaced(graph: ir.Model, own: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Counts of an int8 plan on the model's own pairs, and on pairs where the rules for GPUs put them."""
    anew = conversions_of_model(make_model(without_pairs(graph)))
    there = _counts(anew)
    return [
        {"what": what, "as_given": count, "placed_anew": there[what]} for what, count in _counts(own).items()
    ]


def _counts(found: Mapping[str, Any]) -> dict[str, int]:
    return {
        "convolutions of codes": found["convolutions"],
        "convolutions that write floats": len(found["float_convolutions"]),
        "copies that change the element type": len(found["reformats"]),
    }
