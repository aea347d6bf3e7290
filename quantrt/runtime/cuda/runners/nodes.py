# SPDX-License-Identifier: Apache-2.0
"""ONNX nodes, operator by operator, in torch.

options: those of node_graph.py, "outputs": element type of each output, and "compute":
    "float32"  16-bit floats are brought to float32 first, except for operators that are as good without
    "native"   everything is computed in the type it arrives in
Integers are computed as they are. Codes (a buffer "NAME#int8" or "NAME#fp8") are only moved and compared.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from quantrt.dtypes import FP8
from quantrt.errors import DataError, ModelError
from quantrt.plan.program import Step
from quantrt.runtime.cuda.operands.node_graph import NodeGraph
from quantrt.runtime.cuda.runner import Allocate, Assets, Runner
from quantrt.runtime.cuda.tensors import torch_dtype

__all__ = ["MOVES_CODES", "NATIVE_IN_HALF", "open_runner"]

COMPUTES = ("float32", "native")

_MOVERS = (
    "Compress", "Concat", "DepthToSpace", "Expand", "Flatten", "Gather", "GatherElements", "GatherND",
    "Identity", "Pad", "Reshape", "ReverseSequence", "Slice", "SpaceToDepth", "Split", "Squeeze", "Tile",
    "Transpose", "Unsqueeze",
)  # fmt: skip

NATIVE_IN_HALF = frozenset(
    (*_MOVERS, "AveragePool", "GlobalAveragePool", "GlobalMaxPool", "MaxPool", "ReduceMax", "ReduceMean",
     "ReduceMin", "Relu", "Resize", "Softmax", "TopK", "Upsample")
)  # fmt: skip
"""Operators that only move or compare elements, and those whose 16-bit form in torch sums in float32."""

MOVES_CODES = frozenset((*_MOVERS, "GlobalMaxPool", "MaxPool", "ReduceMax", "ReduceMin"))
"""Operators that mean the same on codes, zero being code 0, as on the values they stand for."""

_WITHOUT_INT8 = ("MaxPool", "GlobalMaxPool")
"""Operators that torch does fast on floats alone. Codes are exact in float16."""

FP8_BYTES = torch.int8
"""What FP8 codes are moved as: torch indexes few tensors of their own type."""


def open_runner(step: Step, assets: Assets) -> Runner:
    """The runner of one step.

    Raises:
        ModelError: the nodes cannot be run, or not on codes.
    """
    return _NodesRunner(step, assets)


class _NodesRunner:
    def __init__(self, step: Step, assets: Assets) -> None:
        self._graph = NodeGraph(step, assets, assets.device)
        self._region = step.region
        self._device = assets.device
        self._outputs = tuple(torch_dtype(name) for name in step.options["outputs"])
        compute = step.options["compute"]
        if compute not in COMPUTES:
            raise ModelError(
                f"region '{step.region}' computes in '{compute}'", expected=" or ".join(COMPUTES)
            )
        op_types = self._graph.op_types
        is_native = compute == "native" or NATIVE_IN_HALF.issuperset(op_types)
        self._floats = None if is_native else torch.float32
        if self._floats is not None:
            self._graph.widen_constants(self._floats)
        self._codes: torch.dtype | None = None
        self._moves_fp8 = FP8.name in self._graph.reads_codes
        if any(self._graph.reads_codes):
            wrong = [op_type for op_type in op_types if op_type not in MOVES_CODES]
            if wrong:
                raise ModelError(f"region '{step.region}' cannot run on codes", got=wrong[0])
            compares = not set(_MOVERS).issuperset(op_types)
            is_slow = any(op in _WITHOUT_INT8 for op in op_types)
            self._codes = torch.float16 if is_slow or (compares and self._moves_fp8) else None

    def run(self, inputs: Sequence[Any], allocate: Allocate) -> Sequence[Any]:
        """See Runner.run; the outputs are the runner's own tensors."""
        pairs = zip(inputs, self._graph.reads_codes, strict=True)
        given = [self._arriving(tensor, is_code=dtype is not None) for tensor, dtype in pairs]
        found = self._graph.run(given)
        return [self._leaving(value, dtype) for value, dtype in zip(found, self._outputs, strict=True)]

    def _arriving(self, tensor: torch.Tensor | None, *, is_code: bool) -> torch.Tensor | None:
        if tensor is None:
            return None
        if is_code:
            if self._codes is not None:
                return tensor.to(self._codes)
            return tensor.view(FP8_BYTES) if tensor.dtype == torch.float8_e4m3fn else tensor
        if self._floats is None or tensor.dtype not in (torch.float16, torch.bfloat16):
            return tensor
        return tensor.to(self._floats)

    def _leaving(self, value: Any, dtype: torch.dtype) -> Any:
        if value is None:
            return None
        if not isinstance(value, torch.Tensor):
            raise DataError(f"region '{self._region}' makes a sequence or nothing, which no buffer holds")
        there = value.to(self._device)
        if dtype == torch.float8_e4m3fn and there.dtype == FP8_BYTES:
            return there.view(dtype)
        return there.to(dtype)
