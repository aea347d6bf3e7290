# SPDX-License-Identifier: Apache-2.0
"""A process that runs models: one JSON request per line in, one JSON answer per line out.

    {"run": MODEL.onnx, "library": ..., "options": ..., "inputs": X.npz, "outputs": Y.npz}  ->  {}
    {"compare": [A, B], "data": X.npz, "limits": ...}            ->  {"passed": false}
    {"engine": E.qrt, "like": B.qrt, "model": A.onnx, "graph": MODEL.onnx}       ->  {}
    any of them                                                  ->  {"error": "one line"}

A process of its own because a library may crash on what is run. Arrays are numbered: i0, i1, ... by the
model's inputs, o0, o1, ... by its outputs.
"""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from quantrt.calibrate.dataset import open_dataset
from quantrt.config import CompareConfig
from quantrt.ir.array_file import write_arrays
from quantrt.model.file.read import read_model
from quantrt.model.load import load_model
from quantrt.plan.lower import lower_to_onnxruntime, lower_to_openvino
from quantrt.plan.plan import ExecOptions
from quantrt.plan.serialize import load_plan, save_plan
from quantrt.report.compare.compare import compare
from quantrt.report.subject import open_subject
from quantrt.runtime.executor import open_executor
from quantrt.worker_process import answer_requests

__all__ = ["answer"]

LOWER = {"onnxruntime": lower_to_onnxruntime, "openvino": lower_to_openvino}


def answer(request: dict[str, Any]) -> dict[str, Any]:
    """What came out, where a library does not refuse."""
    if "run" in request:
        return _run(request)
    return _compare(request) if "compare" in request else _make_engine(request)


def _run(request: dict[str, Any]) -> dict[str, Any]:
    graph = read_model(Path(request["run"])).graph
    names = [value.name or "" for value in graph.graph.outputs]
    inputs = [value.name or "" for value in graph.graph.inputs]
    model = LOWER[request["library"]](graph)
    with np.load(request["inputs"], allow_pickle=False) as arrays:
        feed = {name: arrays[f"i{number}"] for number, name in enumerate(inputs)}
    with closing(open_executor(model, ExecOptions(**request["options"]), output_names=names)) as executor:
        found = executor.run(feed)
    write_arrays(Path(request["outputs"]), {f"o{i}": found[name] for i, name in enumerate(names)})
    return {}


def _compare(request: dict[str, Any]) -> dict[str, Any]:
    a, b = (Path(path) for path in request["compare"])
    with open_subject(a) as reference, open_subject(b) as subject:
        data = open_dataset(request["data"], reference.inputs)
        found = compare(reference, subject, data, CompareConfig(**request["limits"]))
    return {"passed": found["passed"]}


def _make_engine(request: dict[str, Any]) -> dict[str, Any]:
    """An engine of a part: options, library and device are those of the engine it is a part of."""
    plan, model = load_plan(request["like"]), load_model(request["model"])
    graph = read_model(Path(request["graph"])).graph
    part = replace(
        plan,
        model=LOWER[plan.model.library](graph),
        inputs=model.inputs,
        outputs=model.outputs,
        layers=(),
        fingerprint=model.fingerprint,
        report={},
    )
    save_plan(part, request["engine"])
    return {}


if __name__ == "__main__":
    answer_requests(answer)
