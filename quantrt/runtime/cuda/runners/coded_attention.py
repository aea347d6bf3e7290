# SPDX-License-Identifier: Apache-2.0
"""epilogue(softmax(masked(scale * q @ k^T)) @ v) over codes with the kernel of family "attention_coded".

options: {"scale"; "is_transposed": k is [B, G, D, T]; "mask_value": what is not kept, or dropped, becomes;
"dtype": of q, k, v; "scalars": operands of the epilogue; "outputs": element types; "codes": how many of the
last inputs are codes and scales, 2 for each of q, k and v that is coded}. Inputs: q, k, v, a mask or none,
then what runners/encode_attention.py gives. Weights: the mask where it is a constant.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from quantrt.plan.program import Step
from quantrt.runtime.cuda.operands.attention import (
    LOG2E,
    AttentionReader,
    MaskReader,
    allocate_outputs,
    mask_strides,
    value_of_masked,
)
from quantrt.runtime.cuda.runner import Allocate, Assets, Launcher, Runner
from quantrt.runtime.cuda.tensors import torch_dtype

__all__ = ["open_runner"]


def open_runner(step: Step, assets: Assets) -> Runner:
    """The runner of one step."""
    return _CodedAttentionRunner(step, assets)


class _CodedAttentionRunner:
    def __init__(self, step: Step, assets: Assets) -> None:
        options = step.options
        self._scale = float(options["scale"]) * LOG2E
        self._mask_value = value_of_masked(float(options["mask_value"]))
        self._scalars = tuple(float(value) for value in options["scalars"])
        self._outputs = tuple(torch_dtype(name) for name in options["outputs"])
        self._codes = int(options["codes"])
        self._launch: Launcher = assets.kernels[step.kernels[0]]
        self._reader = AttentionReader.of(step, self._launch)
        fixed = dict(self._launch.spec.constants)
        given = {name for name, _ in self._launch.spec.signature}
        self._given = given
        self._are_floats = [f"{name}_scale_ptr" not in given for name in "qkv"]
        self._units = [int(fixed[name]) for name in ("UNIT", "UNIT", "VALUE_UNIT")]
        self._block_m = int(fixed["BLOCK_M"])
        constant = assets.weights[step.weights[0]] if step.weights else None
        self._mask = MaskReader.of(self._reader, constant, self._launch)

    def run(self, inputs: Sequence[Any], allocate: Allocate) -> Sequence[Any]:
        """See Runner.run; the axes of the outputs lie in memory in the order of q's."""
        given, sizes = self._reader.read(inputs)
        outputs = allocate_outputs(allocate, self._outputs, sizes, given[0])
        if sizes.B * sizes.H * sizes.S == 0:
            return outputs
        coded = inputs[len(inputs) - self._codes :]
        operands, scales = self._reader.with_codes(given, coded, self._are_floats, sizes.B)
        masks = [self._mask.read(inputs, sizes)] if "mask_ptr" in self._given else []
        steps = [
            step // unit
            for tensor, unit in zip(operands, self._units, strict=True)
            for step in tensor.stride()[:3]
        ]
        steps += [step // self._mask.unit for mask in masks for step in mask_strides(mask)]
        last = [self._scale] if "scale" in self._given else []
        last += [self._mask_value] if "mask_value" in self._given else []
        arguments = [*operands, *scales, *masks, *outputs, *self._scalars, sizes.H, sizes.S, sizes.T]
        arguments += [*steps, *outputs[0].stride()[:3], *last]
        programs = -(-sizes.S // self._block_m) * sizes.B * sizes.H
        self._launch((programs, 1, 1), arguments)
        return outputs
