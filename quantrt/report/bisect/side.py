# SPDX-License-Identifier: Apache-2.0
"""One of two models that are bisected: its graph, and how it runs. Nothing is opened: that could crash."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import onnx_ir as ir

from quantrt.errors import UsageError
from quantrt.ir.clone import clone
from quantrt.ir.tensor_spec import TensorSpec
from quantrt.model.file.read import read_model
from quantrt.model.load import load_model
from quantrt.model.passes.spell.inline_functions import inline_functions
from quantrt.plan.plan import ExecOptions, Plan
from quantrt.plan.serialize import load_plan
from quantrt.report.layer_errors.graphs import check_built_from, library_graph, openvino_graph

__all__ = ["Side", "read_side"]


@dataclass(frozen=True)
class Side:
    """A model that can be taken apart.

    Attributes:
        path: of its file.
        graph: what runs.
        library, options: what runs it, and how.
        inputs: what it takes.
        is_engine: parts of it are saved as engines.
    """

    path: Path
    graph: ir.Model
    library: str
    options: ExecOptions
    inputs: tuple[TensorSpec, ...]
    is_engine: bool


def read_side(path: Path, other: Path) -> Side:
    """The model in a file.

    Args:
        other: the file it is compared with: the ONNX model of an engine of OpenVINO.

    Raises:
        UsageError: parts of it cannot be run by themselves; says what can be done.
        ModelError: a file cannot be read.
    """
    if path.suffix == ".onnx":
        graph = clone(read_model(path).graph)
        inline_functions(graph)
        return Side(path, graph, "onnxruntime", ExecOptions(), load_model(path).inputs, False)
    if path.suffix != ".qrt":
        raise UsageError(f"cannot run '{path}'", got=f"suffix '{path.suffix}'", expected=".onnx or .qrt")
    plan = load_plan(path)
    if plan.model.library == "cuda":
        raise UsageError(
            f"cannot bisect '{path}': the regions of an engine for a GPU cannot be cut apart",
            hint="--layers, which names the first region that differs",
        )
    if plan.model.library == "onnxruntime":
        graph = library_graph(plan.model)
    else:
        graph = _openvino_graph(plan, path, other)
    return Side(path, graph, plan.model.library, plan.options, plan.inputs, True)


def _openvino_graph(plan: Plan, path: Path, other: Path) -> ir.Model:
    if other.suffix != ".onnx":
        raise UsageError(
            f"cannot bisect '{path}': parts of an engine of OpenVINO are made from its ONNX model",
            got=f"'{other}' to compare with",
            hint="`quantrt compare MODEL.onnx ENGINE.qrt --data P --bisect -o FOLDER` with its own ONNX file",
        )
    model = load_model(other)
    check_built_from(plan, str(path), model)
    return openvino_graph(model, plan.model) if plan.precision == "int8" else model.graph
