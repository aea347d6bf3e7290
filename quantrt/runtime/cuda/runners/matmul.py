# SPDX-License-Identifier: Apache-2.0
"""activation(x[..., K] @ w + bias) through torch: cuBLASLt on a GPU.

options: {"output": element type, int32 for a product of int8 codes; "has_bias"; "activation": "", "relu" or
"gelu_tanh", which need a bias; of FP8 codes also "scale", which the sums are multiplied by, and "is_fast":
they may stay in the tensor cores}. Inputs: x. Weights: the weight [N, K], then the bias [N] in the type of x.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from quantrt.errors import DataError, DeviceError
from quantrt.plan.program import Step
from quantrt.runtime.cuda.runner import Allocate, Assets, Runner
from quantrt.runtime.cuda.runners.gemm import rows_of
from quantrt.runtime.cuda.tensors import torch_dtype

__all__ = ["MIN_CODE_ROWS", "MatmulRunner", "open_runner"]

Tensor = torch.Tensor

MIN_CODE_ROWS = 17
"""torch._int_mm takes no fewer rows."""


def open_runner(step: Step, assets: Assets) -> Runner:
    """The runner of one step."""
    return MatmulRunner(step, assets)


class MatmulRunner:
    """A product.

    Args:
        is_columns_last: of the weight, which is [K, N].
    """

    def __init__(self, step: Step, assets: Assets, *, is_columns_last: bool = False) -> None:
        options = step.options
        self._region = step.region
        self._dtype = torch_dtype(options["output"])
        self._activation = str(options["activation"])
        weight, *bias = (assets.weights[key] for key in step.weights)
        self._weight = weight if is_columns_last else weight.t()
        self._bias = bias[0] if options["has_bias"] else None
        self._scales: tuple[Tensor, Tensor] | None = None
        if self._weight.dtype == torch.float8_e4m3fn:
            numbers = (float(options["scale"]), 1.0)
            first, second = (torch.full((), x, dtype=torch.float32, device=assets.device) for x in numbers)
            self._scales = first, second
        self._is_fast = bool(options.get("is_fast", False))

    def run(self, inputs: Sequence[Any], allocate: Allocate) -> Sequence[Any]:
        """See Runner.run; the output is contiguous."""
        (x,) = inputs
        K, N = self._weight.shape
        if x.dim() < 1 or x.shape[-1] != K or x.dtype != self._weight.dtype:
            got, expected = f"{x.dtype} {list(x.shape)}", f"{self._weight.dtype} [..., {K}]"
            message = f"cannot compute the product of region '{self._region}'"
            raise DataError(message, got=got, expected=expected)
        y = allocate(0, (*x.shape[:-1], N), self._dtype)
        if x.numel() > 0:
            self._multiply(rows_of(x, 1), y.view(-1, N))
        return [y]

    def _multiply(self, x: Tensor, y: Tensor) -> None:
        try:
            if y.dtype == torch.int32:
                _multiply_codes(x, self._weight, y)
            elif self._scales is not None:
                self._multiply_fp8(x, y, *self._scales)
            elif self._bias is None:
                torch.mm(x, self._weight, out=y)
            elif not self._activation:
                torch.addmm(self._bias, x, self._weight, out=y)
            elif y.is_cuda:
                is_gelu = self._activation == "gelu_tanh"
                torch._addmm_activation(self._bias, x, self._weight, use_gelu=is_gelu, out=y)
            else:
                self._activate_on_cpu(x, y)
        except torch.OutOfMemoryError as error:
            raise DeviceError(
                f"not enough memory for the product of region '{self._region}'",
                got=f"{list(x.shape)} @ {list(self._weight.shape)}",
                hint="a smaller batch",
            ) from error

    def _multiply_fp8(self, x: Tensor, y: Tensor, scale: Tensor, one: Tensor) -> None:
        """Product times the scale into y; on a CPU of what the codes stand for."""
        if not y.is_cuda:
            y.copy_(torch.mm(x.float(), self._weight.float()).mul_(scale))
            return
        torch._scaled_mm(
            x,
            self._weight,
            scale_a=scale,
            scale_b=one,
            out_dtype=y.dtype,
            use_fast_accum=self._is_fast,
            out=y,
        )

    def _activate_on_cpu(self, x: Tensor, y: Tensor) -> None:
        """The same by parts: on a CPU torch's fused GELU is the one with erf."""
        product = torch.addmm(self._bias, x, self._weight)  # type: ignore[arg-type]
        if self._activation == "relu":
            y.copy_(product.relu_())
        else:
            y.copy_(torch.nn.functional.gelu(product, approximate="tanh"))


def _multiply_codes(x: Tensor, weight: Tensor, y: Tensor) -> None:
    """Product in int32 into y; too few rows are padded, for no tactic may fail for a smaller batch."""
    M = x.shape[0]
    if M >= MIN_CODE_ROWS:
        torch._int_mm(x, weight, out=y)
        return
    padded = x.new_zeros(MIN_CODE_ROWS, x.shape[1])
    padded[:M] = x
    y.copy_(torch._int_mm(padded, weight)[:M])
