# SPDX-License-Identifier: Apache-2.0
"""epilogue(x[..., K] @ w) with one of our kernels.

options: {"kinds": kind of every operand behind the accumulators, "scalars": values of the scalar ones,
"outputs": element types, "per_row": numbers of the tensor operands of one element for each row}. Inputs: x,
then the tensor operands, [..., 1] where they are of rows, else in the shape of the output. Weights: the
weight [N, K], of a gate [2 N, K], then the constant operands, float32 [N] each.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from quantrt.errors import DataError
from quantrt.plan.program import Step
from quantrt.runtime.cuda.operands.epilogue import EpilogueOperands, aligned
from quantrt.runtime.cuda.runner import Allocate, Assets, Launcher, Runner
from quantrt.runtime.cuda.tensors import torch_dtype

__all__ = ["GemmRunner", "open_runner", "rows_of"]

Tensor = torch.Tensor

_MAX_ROWS = 2**31 - 1
_MAX_STRIDE = 2**22
"""Elements: offsets inside a tile of at most 256 rows have 32 bits."""


def open_runner(step: Step, assets: Assets) -> Runner:
    """The runner of one step."""
    return GemmRunner(step, assets)


class GemmRunner:
    """A product of one kernel."""

    def __init__(self, step: Step, assets: Assets) -> None:
        options = step.options
        self._region = step.region
        self._outputs = tuple(torch_dtype(name) for name in options["outputs"])
        self._weight, *constants = (assets.weights[key] for key in step.weights)
        self._operands = EpilogueOperands(options["kinds"], options["scalars"], constants)
        self._per_row = frozenset(options.get("per_row", ()))
        self._launch: Launcher = assets.kernels[step.kernels[0]]
        self._fixed = dict(self._launch.spec.constants)
        self._stride_unit = self._least_stride()
        self._halves = 2 if self._fixed.get("GATED") else 1

    def run(self, inputs: Sequence[Any], allocate: Allocate) -> Sequence[Any]:
        """See Runner.run; outputs are contiguous."""
        self._check(inputs)
        shape = self._shape(inputs[0])
        outputs = [allocate(number, shape, dtype) for number, dtype in enumerate(self._outputs)]
        x = rows_of(inputs[0], self._stride_unit)
        M = x.shape[0]
        if M > _MAX_ROWS:
            raise self._error(f"{M} rows", f"at most {_MAX_ROWS}", "a smaller batch")
        tensors = [aligned(tensor.contiguous()) for tensor in inputs[1:]]
        return [*outputs, *self._enqueue(x, tensors, outputs, allocate)]

    def _enqueue(
        self, x: Tensor, tensors: list[Tensor], outputs: list[Tensor], allocate: Allocate
    ) -> list[Tensor]:
        """Launch the kernels for x [M, K]; the memory they need beside the outputs."""
        if x.shape[0] > 0:
            sizes = x.shape[0], self._stride_units(x)
            arguments = [x, self._weight, *outputs, *self._operands.in_order(tensors), *sizes]
            self._launch((self._tiles(x), 1, 1), arguments)
        return []

    def _least_stride(self) -> int:
        """The rows of x are a multiple of this many elements apart."""
        return int(self._fixed["STRIDE_UNIT"])

    def _columns(self) -> int:
        """Of the product."""
        return self._weight.shape[0]

    def _tiles(self, x: Tensor) -> int:
        N = self._columns()
        return -(-x.shape[0] // int(self._fixed["BLOCK_M"])) * -(-N // int(self._fixed["BLOCK_N"]))

    def _stride_units(self, x: Tensor) -> int:
        """From one row to the next."""
        return (x.stride(0) if x.shape[0] > 1 else x.shape[1]) // self._stride_unit

    def _shape(self, x: Tensor) -> tuple[int, ...]:
        """Of the outputs."""
        return (*x.shape[:-1], self._columns() // self._halves)

    def _reads(self) -> tuple[torch.dtype, int]:
        """Element type and columns of x."""
        return self._weight.dtype, self._weight.shape[1]

    def _check(self, inputs: Sequence[Any]) -> None:
        dtype, K = self._reads()
        x, *tensors = inputs
        if x.dim() < 1 or x.shape[-1] != K or x.dtype != dtype:
            raise self._error(f"{x.dtype} {list(x.shape)}", f"{dtype} [..., {K}]")
        shape, of_rows = list(self._shape(x)), [*x.shape[:-1], 1]
        for number, tensor in enumerate(tensors):
            expected = of_rows if number in self._per_row else shape
            if list(tensor.shape) != expected:
                raise self._error(f"an operand of {list(tensor.shape)}", f"{expected}")

    def _error(self, got: str, expected: str, hint: str | None = None) -> DataError:
        message = f"cannot compute the product of region '{self._region}'"
        return DataError(message, got=got, expected=expected, hint=hint)


def rows_of(x: Tensor, stride_unit: int) -> Tensor:
    """x[..., K] as [M, K] with elements of a row side by side; copied only where it must be.

    Args:
        stride_unit: the stride of the rows is a multiple of this many elements; K is one too.
    """
    K = x.shape[-1]
    rows = _flattened(x) if x.stride(-1) == 1 or K == 1 else None
    if rows is None or rows.stride(0) % stride_unit or not K <= rows.stride(0) <= _MAX_STRIDE:
        rows = x.reshape(-1, K).contiguous()
    return aligned(rows)


def _flattened(x: Tensor) -> Tensor | None:
    """[M, K] on the memory of x, where all its leading axes have one common stride; None elsewhere."""
    axes = [(size, stride) for size, stride in zip(x.shape[:-1], x.stride()[:-1], strict=True) if size != 1]
    if not axes:
        return x.reshape(1, x.shape[-1])
    if any(outer[1] != inner[0] * inner[1] for outer, inner in zip(axes, axes[1:], strict=False)):
        return None
    return x.as_strided((x.shape[:-1].numel(), x.shape[-1]), (axes[-1][1], 1))
