# SPDX-License-Identifier: Apache-2.0
"""q, k and v of attention as codes with scales.

options: {"scale": of the scores; "is_transposed": k is [B, G, D, T]; "dtype": of q, k, v}. Inputs: q, k, v.
Outputs: codes [B, H, S, D'] and scales [B, H, S] of q; codes [B, G, T, D'] and scales [B, G, blocks] of k;
codes [B, G, D', T'] and scales [B, G, blocks] of v, where the kernel makes those. D' is BLOCK_D, T' the keys
filled up to a multiple of 16.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from quantrt.kernels.attention_codes.spec import KEY_GROUP
from quantrt.plan.program import Step
from quantrt.runtime.cuda.operands.attention import LOG2E, AttentionReader
from quantrt.runtime.cuda.runner import Allocate, Assets, Launcher, Runner

__all__ = ["open_runner"]

_CODES = {"int8": torch.int8, "fp8": torch.float8_e4m3fn}


def open_runner(step: Step, assets: Assets) -> Runner:
    """The runner of one step."""
    return _EncodeAttentionRunner(step, assets)


class _EncodeAttentionRunner:
    def __init__(self, step: Step, assets: Assets) -> None:
        self._scale = float(step.options["scale"]) * LOG2E
        self._launch: Launcher = assets.kernels[step.kernels[0]]
        self._reader = AttentionReader.of(step, self._launch)
        self._fixed = dict(self._launch.spec.constants)

    def run(self, inputs: Sequence[Any], allocate: Allocate) -> Sequence[Any]:
        """See Runner.run."""
        fixed = self._fixed
        block, columns = int(fixed["BLOCK_N"]), int(fixed["BLOCK_D"])
        given, sizes = self._reader.read(inputs)
        B, H, S, T, G = sizes.B, sizes.H, sizes.S, sizes.T, sizes.G
        blocks = -(-T // block)
        shapes: list[tuple[tuple[int, ...], torch.dtype]] = []
        programs = 0
        if fixed["SCORES"] != "floats":
            codes = _CODES[fixed["SCORES"]]
            shapes += [((B, H, S, columns), codes), ((B, H, S), torch.float32)]
            shapes += [((B, G, T, columns), codes), ((B, G, blocks), torch.float32)]
            programs += B * H * -(-S // block) + B * G * blocks
        if fixed["VALUES"] != "floats":
            width = -(-T // KEY_GROUP) * KEY_GROUP
            shapes += [((B, G, columns, width), _CODES[fixed["VALUES"]]), ((B, G, blocks), torch.float32)]
            programs += B * G * blocks
        outputs = [allocate(number, shape, dtype) for number, (shape, dtype) in enumerate(shapes)]
        if programs == 0:
            return outputs
        tensors = [self._reader.readable(tensor, B) for tensor in given]
        steps = self._reader.steps(tensors)
        self._launch((programs, 1, 1), [*tensors, *outputs, B, H, S, T, *steps, self._scale])
        return outputs
