# SPDX-License-Identifier: Apache-2.0
"""The first run of an OpenVINO model in a process of its own, because compiling it may crash.

OpenVINO compiles when shapes arrive, so the model is opened and run, on zeros.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from quantrt.ir.array_file import write_arrays
from quantrt.ir.scratch import scratch_folder
from quantrt.plan.plan import ExecOptions, LibraryModel
from quantrt.runtime.openvino.executor import OpenVinoExecutor
from quantrt.worker_process import CRASHED, WorkerProcess, answer_requests

__all__ = ["WORKER", "answer", "how_it_crashes"]

WORKER = "quantrt.runtime.openvino.first_run"

GRAPH, WEIGHTS = "graph", "weights.npz"
"""Files of a request's folder; arrays are numbered in the order of their names in the request."""


def how_it_crashes(
    model: LibraryModel,
    options: ExecOptions,
    shapes: Sequence[Sequence[int]],
    own_shapes: int,
) -> str | None:
    """How a process died that opened a model and ran it once; None when it lived, whatever it said.

    Args:
        shapes: of the library's inputs, in its order.
        own_shapes: as for OpenVinoExecutor; 0 for a model compiled for any shapes.

    Raises:
        DeviceError: the process cannot be started, or the disk is full.
        InternalError: a fault of ours ended the request.
    """
    with scratch_folder() as folder, closing(WorkerProcess(WORKER)) as process:
        (folder / GRAPH).write_bytes(model.graph)
        write_arrays(folder / WEIGHTS, _numbered(model.weights))
        answer = process.ask(
            {
                "folder": str(folder),
                "options": asdict(options),
                "weights": list(model.weights),
                "shapes": [list(shape) for shape in shapes],
                "own_shapes": own_shapes,
            }
        )
    return answer.get(CRASHED)


def answer(request: dict[str, Any]) -> dict[str, Any]:
    """Open the model and run it once."""
    folder = Path(request["folder"])
    weights = _named(folder / WEIGHTS, request["weights"])
    model = LibraryModel("openvino", (folder / GRAPH).read_bytes(), weights)
    options = ExecOptions(**request["options"])
    with closing(OpenVinoExecutor(model, options, own_shapes=request["own_shapes"])) as executor:
        executor.run_zeros(tuple(tuple(shape) for shape in request["shapes"]))
    return {}


def _numbered(arrays: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    return {f"a{number}": array for number, array in enumerate(arrays.values())}


def _named(path: Path, names: Sequence[str]) -> dict[str, np.ndarray]:
    with np.load(path, allow_pickle=False) as arrays:
        return {name: arrays[f"a{number}"] for number, name in enumerate(names)}


if __name__ == "__main__":
    answer_requests(answer)
