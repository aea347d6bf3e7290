# SPDX-License-Identifier: Apache-2.0
"""Convolutions of each channel by itself: in patches of pixels, then pixel by pixel."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from quantrt.gpu import GpuFacts
from quantrt.kernels.conv2d.spec import ConvProblem
from quantrt.kernels.depthwise import spec as depthwise
from quantrt.kernels.depthwise import tiles as depthwise_tiles
from quantrt.kernels.depthwise_patches import spec as patches
from quantrt.kernels.depthwise_patches import tiles as patch_tiles
from quantrt.regions.region import Conv
from quantrt.tactics.cuda.convolutions.of_workload import tactic_of
from quantrt.tactics.cuda.convolutions.weights import channels_after_taps
from quantrt.tactics.cuda.tactic import Tactic, Workload
from quantrt.tactics.cuda.tiles_of import tiles_of

__all__ = ["depthwise_tactics"]


def depthwise_tactics(
    workload: Workload, formula: Conv, problem: ConvProblem, weight: np.ndarray, device: GpuFacts
) -> list[Tactic]:
    """Our kernels in their tiles, the likely fastest first.

    Args:
        problem: that the kernel of single pixels has nothing against; gaps between pixels are copied away.
    """
    problem = replace(problem, x_pitch=0, pitches=())
    constant = channels_after_taps(formula.weight, weight, problem.dtype)
    tactics = []
    for tile in () if patches.why_not(problem) else tiles_of(patch_tiles.configs, problem, device):
        spec = patches.kernel_of(problem, tile)
        tactic = tactic_of(workload, problem, constant, f"depthwise {tile.name}", spec)
        drafts = tuple(replace(draft, runner="depthwise_patches") for draft in tactic.drafts)
        tactics.append(replace(tactic, drafts=drafts))
    for pixels in tiles_of(depthwise_tiles.configs, problem, device):
        spec = depthwise.kernel_of(problem, pixels)
        tactics.append(tactic_of(workload, problem, constant, f"depthwise {pixels.name}", spec))
    return tactics
