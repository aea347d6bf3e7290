# SPDX-License-Identifier: Apache-2.0
"""ReLU linear attention by the kernel of family "linear_attention", or without kernels by torch's products.

options: {"heads": elements of a head of q and k, and of v, "outputs": [element type], "epsilon": of the
divisor, which kernels have inside}. Inputs: q, k, v, each with four axes. Heads of the result lie beside each
other in memory, [B, S, H, E], as channels of an image do.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from quantrt.errors import DataError
from quantrt.kernels.linear_attention.spec import is_dense
from quantrt.plan.program import Step
from quantrt.runtime.cuda.runner import Allocate, Assets, Launcher, Runner
from quantrt.runtime.cuda.tensors import torch_dtype

__all__ = ["open_runner"]

_MAX_OFFSET = 2**31 - 1

Compute = Callable[[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor], None]
"""Of q, k and v into y."""


def open_runner(step: Step, assets: Assets) -> Runner:
    """The runner of one step."""
    return _LinearAttentionRunner(step, _Kernels(step, assets) if step.kernels else _Products(step))


class _LinearAttentionRunner:
    def __init__(self, step: Step, compute: Compute) -> None:
        self._region = step.region
        self._D, self._E = (int(n) for n in step.options["heads"])
        self._dtype = torch_dtype(step.options["outputs"][0])
        self._compute = compute

    def run(self, inputs: Sequence[Any], allocate: Allocate) -> Sequence[Any]:
        """See Runner.run."""
        q, k, v = inputs
        self._check(q, k, v)
        B, H, S, _ = q.shape
        y = allocate(0, (B, S, H, self._E), self._dtype).transpose(1, 2)
        if y.numel():
            self._compute(q, k, v, y)
        return [y]

    def _check(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> None:
        is_good = (
            q.dim() == k.dim() == v.dim() == 4
            and q.shape[:2] == k.shape[:2] == v.shape[:2]
            and k.shape[2] == v.shape[2]
            and q.shape[3] == k.shape[3] == self._D
            and v.shape[3] == self._E
        )
        if not is_good:
            expected = f"q [B, H, S, {self._D}], k [B, H, T, {self._D}], v [B, H, T, {self._E}]"
            raise _error(self._region, (q, k, v), expected)


class _Kernels:
    """By one kernel for heads that lie in one piece, and one for any."""

    def __init__(self, step: Step, assets: Assets) -> None:
        self._region = step.region
        self._dense, self._any = (assets.kernels[key] for key in step.kernels)

    def __call__(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, y: torch.Tensor) -> None:
        tensors = (q, k, v, y)
        if max(x.shape[2] * x.stride(2) for x in tensors) > _MAX_OFFSET:
            raise _error(self._region, tensors, "tokens of one head within 2**31 elements")
        are_dense = all(is_dense(x.data_ptr(), x.stride()) for x in tensors)
        launch: Launcher = self._dense if are_dense else self._any
        strides = [stride for x in tensors for stride in x.stride()]
        B, H, S, _ = q.shape
        launch((B * H, 1, 1), [*tensors, H, S, k.shape[2], *strides])


class _Products:
    """By torch's products in float32."""

    def __init__(self, step: Step) -> None:
        self._epsilon = float(step.options["epsilon"])

    def __call__(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, y: torch.Tensor) -> None:
        q, k = (x.to(torch.float32).relu() for x in (q, k))
        sums = q @ (k.mT @ v.to(torch.float32))
        divisors = q @ k.sum(2).unsqueeze(3) + self._epsilon
        y.copy_(sums / divisors)


def _error(region: str, tensors: Sequence[torch.Tensor], expected: str) -> DataError:
    got = ", ".join(str(list(x.shape)) for x in tensors)
    return DataError(f"cannot attend in region '{region}'", got=got, expected=expected)
