# SPDX-License-Identifier: Apache-2.0
"""A convolution of a workload as the problem of its kernels, and the tactic of one of them."""

from __future__ import annotations

import numpy as np

from quantrt.kernels.conv2d.spec import ConvProblem
from quantrt.kernels.kernel import KernelSpec
from quantrt.kernels.spatial import as_pair
from quantrt.regions.region import Conv
from quantrt.tactics.cuda.forms.channel_constants import channel_constants
from quantrt.tactics.cuda.forms.pixel_gaps import gaps_of, pixel_options
from quantrt.tactics.cuda.tactic import Constant, Tactic, Workload, whole_draft

__all__ = ["problem_of", "tactic_of"]

_SOURCE = "triton"


def problem_of(workload: Workload, formula: Conv, weight: np.ndarray) -> ConvProblem:
    """The problem of a convolution with one or two spatial axes."""
    images, C, *size = workload.inputs[0].shape
    half = len(formula.pads) // 2
    top, left = as_pair(formula.pads[:half], 0)
    bottom, right = as_pair(formula.pads[half:], 0)
    H, W = as_pair(tuple(size), 1)
    x_pitch, pitches = gaps_of(workload)
    R, S = as_pair(weight.shape[2:], 1)
    return ConvProblem(
        images=images,
        H=H,
        W=W,
        C=C,
        N=weight.shape[0],
        R=R,
        S=S,
        strides=as_pair(formula.strides, 1),
        pads=(top, left, bottom, right),
        dilations=as_pair(formula.dilations, 1),
        dtype=workload.inputs[0].dtype,
        epilogue=formula.epilogue,
        tensors=tuple(facts.dtype for facts in workload.inputs[1:]),
        outputs=workload.outputs,
        pad_code=formula.pad_code,
        x_pitch=x_pitch,
        pitches=pitches,
    )


def tactic_of(
    workload: Workload, problem: ConvProblem, weight: Constant, name: str, spec: KernelSpec
) -> Tactic:
    """The tactic of one kernel, with the options that its runner reads.

    Args:
        problem: as the model has it, whatever the kernel makes of it.
    """
    rank = len(workload.inputs[0].shape) - 2
    operands = problem.epilogue.operands[1:]
    pads = (*problem.pads[2 - rank : 2], *problem.pads[4 - rank :])
    options = {
        "kernel": [problem.R, problem.S][2 - rank :],
        "strides": list(problem.strides[2 - rank :]),
        "dilations": list(problem.dilations[2 - rank :]),
        "pads": list(pads),
        "channels": [problem.C, problem.N],
        "kinds": [operand.kind for operand in operands],
        "scalars": [operand.value for operand in operands if operand.kind == "scalar"],
        **pixel_options(problem),
    }
    if problem.repeats != (1, 1):
        options["repeats"] = list(problem.repeats)
    constants = (weight, *channel_constants(workload, problem.epilogue, problem.N))
    return Tactic(_SOURCE, name, (whole_draft("conv2d", workload, options, constants, (spec,)),))
