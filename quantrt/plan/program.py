# SPDX-License-Identifier: Apache-2.0
"""What the CUDA executor runs: steps over named buffers, JSON-ready; kernels and weights beside it.

A buffer is a value of the graph in one form: its float form has the value's own name, its codes the name with
"#int8" or "#fp8" behind it. Every buffer is made by one step, or is an input of the program.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from quantrt.dtypes import CODE_TYPES, INT8, precision_of
from quantrt.kernels.kernel import CompiledKernel
from quantrt.plan.coded_weight import CodedWeight
from quantrt.plan.cudnn_plan import CudnnPlan
from quantrt.plan.grouped_weight import GroupedWeight

__all__ = ["QUANTIZATION", "Place", "Program", "Step", "codes_of", "type_of_codes"]

WORDS = np.dtype(np.int16)
"""What holds four codes of 4 bits, as `kernels.gemm_w4a16` reads them; nothing else is held so."""

QUANTIZATION = "quantization"
"""The note that holds the record of the quantized model; see `quantrt.quantize.record`."""


@dataclass(frozen=True)
class Place:
    """Where an output goes that is a slice of the channels of a larger image, channels last.

    Attributes:
        buffer: the output.
        first, channels: of the larger image: where the slice begins, and how many there are in all.
        beside: a buffer made earlier that is a slice of the same; "": this is the first one.
        beside_first: where that one begins.
    """

    buffer: str
    first: int
    channels: int
    beside: str = ""
    beside_first: int = 0


@dataclass(frozen=True)
class Step:
    """One call of a runner.

    Attributes:
        runner: name of the module in quantrt/runtime/cuda/runners that runs it.
        region: name of the region it belongs to, for messages and reports.
        inputs, outputs: buffers. An input that is "" is absent.
        options: the runner's own, JSON-ready.
        weights: keys of Program.weights or Program.coded, in the runner's order.
        kernels: keys of Program.kernels that it may launch; the first whose requirements hold is taken.
        plans: keys of Program.plans that it runs.
        is_host: its outputs live on the CPU and depend on shapes alone.
        reads_values: it cannot be captured in a CUDA graph.
        places: of outputs that are slices of something larger.
    """

    runner: str
    region: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    options: Mapping[str, Any] = field(default_factory=dict)
    weights: tuple[str, ...] = ()
    kernels: tuple[str, ...] = ()
    plans: tuple[str, ...] = ()
    is_host: bool = False
    reads_values: bool = False
    places: tuple[Place, ...] = ()


@dataclass(frozen=True)
class Program:
    """A whole model for the CUDA executor.

    Attributes:
        inputs: for each input of the model, in order: (name, element type of its buffer).
        outputs: for each output, in order: (name, buffer, element type the caller gets).
        steps: in the order they run.
        weights: arrays by key, as kernels read them.
        coded: weights by key that are held as codes; kernels read the floats that they stand for.
        kernels: machine code by key.
        plans: what cuDNN compiled, by key.
        nodes: an ONNX protobuf of the nodes that run as such, without large weights; empty without any.
        notes: facts for the report, JSON-ready.
    """

    inputs: tuple[tuple[str, str], ...]
    outputs: tuple[tuple[str, str, str], ...]
    steps: tuple[Step, ...]
    weights: Mapping[str, np.ndarray]
    kernels: Mapping[str, CompiledKernel]
    nodes: bytes = b""
    notes: Mapping[str, Any] = field(default_factory=dict)
    plans: Mapping[str, CudnnPlan] = field(default_factory=dict)
    coded: Mapping[str, CodedWeight | GroupedWeight] = field(default_factory=dict)

    def held(self, key: str) -> tuple[np.ndarray, ...]:
        """What is held of a weight: the array itself, or codes, scales and perhaps zero points."""
        coded = self.coded.get(key)
        return (self.weights[key],) if coded is None else coded.arrays

    def held_type(self, key: str) -> str:
        """Element type of what is held of a weight; "int4" of codes that are several in an element."""
        coded = self.coded.get(key)
        array = self.weights[key] if coded is None else coded.codes
        is_packed = isinstance(coded, GroupedWeight) or array.dtype == WORDS
        return "int4" if is_packed else str(array.dtype)


def codes_of(value: str, dtype: str = INT8.name) -> str:
    """The buffer of a value's codes of a type."""
    return f"{value}#{precision_of(dtype)}"


def type_of_codes(buffer: str) -> str | None:
    """Element type of the codes that a buffer is for, by its name; None where it is for something else."""
    precision = buffer.rpartition("#")[2] if "#" in buffer else ""
    return next((row.name for row in CODE_TYPES if row.precision == precision), None)
