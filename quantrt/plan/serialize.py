# SPDX-License-Identifier: Apache-2.0
"""Plan -> engine file -> Plan. The file is safetensors with a JSON header; nothing in it is ever executed.

Tensor "graph" holds the bytes of the library's model, "weights/NAME" each of its weights; small weights, and
the machine code of an engine for a GPU, are compressed into "graph" too (packed.py).
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from quantrt.errors import ModelError
from quantrt.plan.container import FORMAT_VERSION, Container, open_container, write_container
from quantrt.plan.foreign import damaged
from quantrt.plan.header import header_of, plan_from_header
from quantrt.plan.packed import pack, unpack
from quantrt.plan.plan import LibraryModel, Plan

__all__ = ["PlanFacts", "load_plan", "peek_plan", "save_plan"]

GRAPH = "graph"
WEIGHTS = "weights/"
LIBRARIES = ("onnxruntime", "openvino", "cuda")


@dataclass(frozen=True)
class PlanFacts:
    """What the header of an engine file tells.

    Attributes:
        plan: the plan with an empty model: its graph and weights were not read.
        format_version: of the file.
        model_bytes: size of the graph and weights in the file.
        file_bytes: size of the file.
    """

    plan: Plan
    format_version: int
    model_bytes: int
    file_bytes: int


def save_plan(plan: Plan, path: Path | str) -> None:
    """Write `plan` as an engine file, wholly or not at all; weights are streamed from where they are.

    Raises:
        DeviceError: the path cannot be written or the disk is full; nothing is left behind.
        InternalError: the report or the device facts are not JSON.
    """
    model = pack(plan.model)
    tensors = {WEIGHTS + name: array for name, array in model.weights.items()}
    tensors[GRAPH] = np.frombuffer(model.graph, np.uint8)
    write_container(Path(path), {"format_version": FORMAT_VERSION, **header_of(plan)}, tensors)


def load_plan(path: Path | str) -> Plan:
    """The plan in an engine file, its checksums verified; weights are read-only and memory-mapped.

    Raises:
        ModelError: the file is missing, not an engine, damaged, of a newer format, or for a library that
            this version does not know.
    """
    path = Path(path)
    container = open_container(path)
    if GRAPH not in container.tensors:
        raise damaged(path, "no graph")
    graph = container.tensors.pop(GRAPH).tobytes()
    weights = {name.removeprefix(WEIGHTS): array for name, array in container.tensors.items()}
    return _plan(container, graph, weights, path)


def peek_plan(path: Path | str) -> PlanFacts:
    """What an engine file says of itself, from its header alone: quick, whatever the size of the weights.

    Raises:
        ModelError: as `load_plan`, except that damage to the weights goes unseen.
    """
    path = Path(path)
    container = open_container(path, with_tensors=False)
    plan = _plan(container, b"", {}, path)
    model_bytes = sum(container.sizes_bytes.values())
    return PlanFacts(plan, int(container.header["format_version"]), model_bytes, path.stat().st_size)


def _plan(container: Container, graph: bytes, weights: dict[str, np.ndarray], path: Path) -> Plan:
    library = container.header.get("library")
    if not isinstance(library, str):
        raise damaged(path, "its header names no library")
    if library not in LIBRARIES:
        raise ModelError(
            f"cannot use engine '{path}': its library is not known to this QuantRT",
            got=f"'{library}'",
            expected=" or ".join(LIBRARIES),
        )
    try:
        return plan_from_header(container.header, unpack(LibraryModel(library, graph, weights)))
    except (KeyError, TypeError, ValueError) as error:
        raise damaged(
            path, f"its header does not describe an engine ({type(error).__name__}: {error})"
        ) from error
