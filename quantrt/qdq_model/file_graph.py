# SPDX-License-Identifier: Apache-2.0
"""The graph that goes into a file: Q/DQ nodes as the runtime that it is for takes them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import onnx_ir as ir

from quantrt.plan.lower import spell_for_onnxruntime
from quantrt.quantize.qdq.own_scales import give_own_scales
from quantrt.quantize.qdq.write import write
from quantrt.quantize.quantized_model import QuantizedModel
from quantrt.quantize.targets.onnxruntime import ORT
from quantrt.report.inspect.budget import BUDGET_KEY

__all__ = ["file_graph", "tell_budget"]


def file_graph(quantized: QuantizedModel) -> ir.Model:
    """Standard ONNX with Q/DQ nodes, for the target that placed them."""
    made = write(quantized)
    return give_own_scales(spell_for_onnxruntime(made)) if quantized.target.name == ORT.name else made


def tell_budget(graph: ir.Model, report: Mapping[str, Any]) -> ir.Model:
    """The graph, whose file says what came of a budget: in a property that runtimes pass over."""
    graph.metadata_props[BUDGET_KEY] = json.dumps(report, allow_nan=False)
    return graph
