# SPDX-License-Identifier: Apache-2.0
"""epilogue(softmax(scale * q @ k^T) @ v) with the kernel of compute capability 9.0.

options: {"scale": of the scores; "is_transposed": k is [B, G, D, T]; "dtype": of q, k, v; "scalars":
operands of the epilogue; "outputs": element types; "codes": how many inputs behind q, k and v are codes and
scales: 0, 4 for those of q and k, 6 for those of v too}. Inputs: q, k, v, then what
runners/encode_attention.py gives.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from quantrt.plan.program import Step
from quantrt.runtime.cuda.attention_operands import allocate_outputs, readable, sizes_of
from quantrt.runtime.cuda.runner import Allocate, Assets, Launcher, Runner
from quantrt.runtime.cuda.runners.gemm_hopper import programs_on
from quantrt.runtime.cuda.tensors import torch_dtype

__all__ = ["open_runner"]

_LOG2E = math.log2(math.e)
_ROWS = 64
"""Queries of a consumer."""


def open_runner(step: Step, assets: Assets) -> Runner:
    """The runner of one step."""
    return _HopperAttentionRunner(step, assets)


class _HopperAttentionRunner:
    def __init__(self, step: Step, assets: Assets) -> None:
        options = step.options
        self._region = step.region
        self._scale = float(options["scale"]) * _LOG2E
        self._is_transposed = bool(options["is_transposed"])
        self._dtype = torch_dtype(options["dtype"])
        self._scalars = tuple(float(value) for value in options["scalars"])
        self._outputs = tuple(torch_dtype(name) for name in options["outputs"])
        self._codes = int(options["codes"])
        self._launch: Launcher = assets.kernels[step.kernels[0]]
        self._fixed = dict(self._launch.spec.constants)
        self._programs = programs_on(assets.device)

    def run(self, inputs: Sequence[Any], allocate: Allocate) -> Sequence[Any]:
        """See Runner.run; the axes of the outputs lie in memory in the order of q's."""
        groups, unit = int(self._fixed["GROUPS"]), int(self._fixed["UNIT"])
        q, k, v = (tensor.to(self._dtype) for tensor in inputs[:3])
        k = k.transpose(-1, -2) if self._is_transposed else k
        sizes = sizes_of(self._region, q, k, v, groups=groups, columns=int(self._fixed["D"]))
        outputs = allocate_outputs(allocate, self._outputs, sizes, q)
        if sizes.B * sizes.H * sizes.S == 0:
            return outputs
        if sizes.T == 0:
            return [output.zero_() for output in outputs]
        floats = [tensor.expand(sizes.B, -1, -1, -1) for tensor in (q, k, v)]
        coded = list(inputs[3 : 3 + self._codes])
        operands, scales = [*coded[0::2]], coded[1::2]
        operands += [
            readable(self._region, tensor, unit, groups=groups) for tensor in floats[len(operands) :]
        ]
        factor = [] if scales else [self._scale]
        steps = [step // unit for step in outputs[0].stride()[:3]]
        lengths = [sizes.B, sizes.H, sizes.S, sizes.T]
        arguments = [*operands, *scales, *outputs, *self._scalars, *lengths, *steps, *factor]
        queries = _ROWS * int(self._fixed["CONSUMERS"])
        tiles = sizes.B * sizes.H * -(-sizes.S // queries)
        self._launch((min(tiles, self._programs), 1, 1), arguments)
        return outputs
