# SPDX-License-Identifier: Apache-2.0
"""The artefact of stage 7: everything needed to run, and to explain, an engine."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from quantrt.ir.tensor_spec import TensorSpec
from quantrt.model.model import Fingerprint

__all__ = ["ExecOptions", "Layer", "LibraryModel", "Plan"]


@dataclass(frozen=True)
class LibraryModel:
    """A model in the form one library loads.

    Attributes:
        library: "onnxruntime" (graph is an ONNX protobuf whose large initializers are external and named
            like their entry in `weights`), "openvino" (graph is the XML of an OpenVINO IR, `weights` has
            one uint8 array "bin") or "cuda" (see quantrt/plan/program_json.py).
        graph: the model without its large weights.
        weights: arrays by name; may be memory-mapped, never written to.
    """

    library: str
    graph: bytes
    weights: Mapping[str, np.ndarray]

    @property
    def size_bytes(self) -> int:
        """Bytes of graph and weights together."""
        return len(self.graph) + sum(array.nbytes for array in self.weights.values())


@dataclass(frozen=True, kw_only=True)
class ExecOptions:
    """How a library executes its model.

    Attributes:
        threads: threads per run; None for all physical cores.
        hint: "latency" or "throughput".
        float_precision: "fp32", or "bf16" where the CPU has it: what layers outside int8 compute in.
        keeps_floats: of ONNX Runtime: products that the model leaves float between codes stay float; by
            itself it would quantize their weights.
        one_thread_shapes: of the library's inputs, in its order, where one thread makes a run; None for
            nowhere.
    """

    threads: int | None = None
    hint: str = "latency"
    float_precision: str = "fp32"
    keeps_floats: bool = False
    one_thread_shapes: tuple[tuple[int, ...], ...] | None = None


@dataclass(frozen=True, kw_only=True)
class Layer:
    """One node of the float model and the precision it was given.

    Attributes:
        name, op_type: of the canonical model's node.
        precision: "int8", "fp32", "bf16".
        reason: why it has that precision, one phrase.
        sources: names of the nodes of the file that became this one (a folded BatchNormalization, ...).
    """

    name: str
    op_type: str
    precision: str
    reason: str
    sources: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Plan:
    """A verified engine before it is opened.

    Attributes:
        model: what the library loads.
        options: how it runs.
        inputs, outputs: the engine's interface.
        precision: "int8", "fp32" or "bf16": of the whole engine, as shipped.
        layers: one row per node of the canonical model.
        fingerprint: of the float model it was built from.
        device: facts of the machine it was timed on (see `quantrt.device.describe_device`).
        is_calibrated: False when ranges come from random data.
        report: the build report, JSON-ready (see `quantrt.report.built.report`).
    """

    model: LibraryModel
    options: ExecOptions
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    precision: str
    layers: tuple[Layer, ...]
    fingerprint: Fingerprint
    device: Mapping[str, Any]
    is_calibrated: bool = True
    report: Mapping[str, Any] = field(default_factory=dict)
