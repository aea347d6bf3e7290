# SPDX-License-Identifier: Apache-2.0
"""epilogue(softmax(scale * q @ k^T + mask) @ v) with a kernel of compute capability 9.0.

options: {"scale": of the scores; "is_transposed": k is [B, G, D, T]; "dtype": of q, k, v; "scalars":
operands of the epilogue; "outputs": element types; "codes": how many of the last inputs are codes and
scales, 2 for each of q, k and v that is coded}. Inputs: q, k, v, a mask or none, then what
runners/encode_attention.py gives. Weights: the mask where it is a constant.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from quantrt.kernels.attention_hopper.spec import QUERIES
from quantrt.plan.program import Step
from quantrt.runtime.cuda.operands.attention import LOG2E, AttentionReader, MaskReader, allocate_outputs
from quantrt.runtime.cuda.runner import Allocate, Assets, Launcher, Runner
from quantrt.runtime.cuda.runners.gemm_hopper import programs_on
from quantrt.runtime.cuda.tensors import torch_dtype

__all__ = ["open_runner"]


def open_runner(step: Step, assets: Assets) -> Runner:
    """The runner of one step."""
    return _HopperAttentionRunner(step, assets)


class _HopperAttentionRunner:
    def __init__(self, step: Step, assets: Assets) -> None:
        options = step.options
        self._scale = float(options["scale"]) * LOG2E
        self._scalars = tuple(float(value) for value in options["scalars"])
        self._outputs = tuple(torch_dtype(name) for name in options["outputs"])
        self._codes = int(options["codes"])
        self._launch: Launcher = assets.kernels[step.kernels[0]]
        self._reader = AttentionReader.of(step, self._launch)
        fixed = dict(self._launch.spec.constants)
        given = {name for name, _ in self._launch.spec.signature}
        self._has_mask = "mask_desc" in given
        self._are_floats = [f"{name}_scale_ptr" not in given for name in "qkv"]
        constant = assets.weights[step.weights[0]] if step.weights else None
        self._mask = MaskReader.of(self._reader, constant, self._launch)
        self._programs = programs_on(assets.device) * int(fixed.get("NEIGHBOURS", 1))

    def run(self, inputs: Sequence[Any], allocate: Allocate) -> Sequence[Any]:
        """See Runner.run; the axes of the outputs lie in memory in the order of q's."""
        given, sizes = self._reader.read(inputs)
        outputs = allocate_outputs(allocate, self._outputs, sizes, given[0])
        if sizes.B * sizes.H * sizes.S == 0:
            return outputs
        if sizes.T == 0:
            return [output.zero_() for output in outputs]
        coded = inputs[len(inputs) - self._codes :]
        operands, scales = self._reader.with_codes(given, coded, self._are_floats, sizes.B)
        factor = [self._scale] if self._are_floats[0] else []
        steps = self._reader.steps(outputs[:1])
        lengths = [sizes.B, sizes.H, sizes.S, sizes.T]
        masks = [self._mask.read_box(inputs, sizes)] if self._has_mask else []
        varies = [int(size > 1) for mask in masks for size in mask.shape[:2]]
        arguments = [*operands, *masks, *scales, *outputs, *self._scalars, *lengths, *varies, *steps, *factor]
        tiles = sizes.B * sizes.H * -(-sizes.S // QUERIES)
        self._launch((min(tiles, self._programs), 1, 1), arguments)
        return outputs
