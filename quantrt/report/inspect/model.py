# SPDX-License-Identifier: Apache-2.0
"""What is in a model."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from typing import Any

from quantrt.model.model import Model
from quantrt.report.inspect.budget import read_budget, show_budget
from quantrt.report.inspect.conversions import conversions_of_model, show_conversions
from quantrt.report.inspect.lint import describe_pairs, show_pairs
from quantrt.report.quantities import bytes_text, count_text
from quantrt.report.tables import facts, heading, show, table

__all__ = ["describe_model", "show_model"]


def describe_model(model: Model) -> dict[str, Any]:
    """JSON-ready facts of the canonical model.

    "conversions" are those of an int8 plan of it for a GPU; see `quantrt.report.inspect.conversions`. "pairs"
    is None for a model that is not quantized, or was not read from a file; see `quantrt.report.inspect.lint`.
    "budget" is what `quantrt quantize` made of one; see `quantrt.report.inspect.budget`.
    """
    conversions = conversions_of_model(model)
    nodes = list(model.graph.graph)
    weights = [value.const_value for value in model.graph.graph.initializers.values()]
    return {
        "kind": "model",
        "path": None if model.path is None else str(model.path),
        "file_bytes": model.file_bytes,
        "opset": dict(model.graph.opset_imports),
        "inputs": [_spec(spec) for spec in model.inputs],
        "outputs": [_spec(spec) for spec in model.outputs],
        "parameters": sum(math.prod(array.shape.numpy()) for array in weights if array is not None),
        "operators": dict(Counter(node.op_type for node in nodes).most_common()),
        "changes": list(model.changes),
        "conversions": conversions,
        "pairs": None if model.path is None else describe_pairs(model.path, conversions),
        "budget": read_budget(model.graph.metadata_props),
        "fingerprint": {"graph": model.fingerprint.graph, "weights": model.fingerprint.weights},
        "nodes": [
            {
                "name": node.name,
                "op_type": node.op_type,
                "inputs": [value.name for value in node.inputs if value is not None],
                "outputs": [value.name for value in node.outputs],
            }
            for node in nodes
        ],
    }


def show_model(data: Mapping[str, Any], *, layers: bool = False) -> None:
    """The facts as tables; with `layers`, every node too."""
    opset = ", ".join(f"{domain or 'ai.onnx'} {version}" for domain, version in data["opset"].items())
    pairs = [
        ("size", bytes_text(data["file_bytes"])),
        ("opset", opset),
        *(("input", spec["text"]) for spec in data["inputs"]),
        *(("output", spec["text"]) for spec in data["outputs"]),
        ("parameters", count_text(data["parameters"])),
        *(("changed", change) for change in data["changes"]),
        ("graph", data["fingerprint"]["graph"]),
        ("weights", data["fingerprint"]["weights"]),
    ]
    show(heading(f"{data['path']}: ONNX model, {len(data['nodes'])} nodes"), facts(pairs))
    rows = [(name, str(count)) for name, count in data["operators"].items()]
    show("", table(("operator", "nodes"), rows, left=("operator",)))
    show_conversions("int8 on a GPU", data["conversions"], layers=layers)
    if data["pairs"] is not None:
        show_pairs(data["pairs"], layers=layers)
    if data["budget"] is not None:
        show_budget(data["budget"], layers=layers)
    if layers:
        nodes = [(node["name"], node["op_type"], ", ".join(node["outputs"])) for node in data["nodes"]]
        show("", table(("node", "operator", "makes"), nodes, left=("operator",), fold=("node", "makes")))


def _spec(spec: Any) -> dict[str, Any]:
    shape = None if spec.shape is None else list(spec.shape)
    return {"name": spec.name, "dtype": spec.dtype, "shape": shape, "text": str(spec)}
