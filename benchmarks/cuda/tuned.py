# SPDX-License-Identifier: Apache-2.0
"""Workloads tuned on the GPU that is here, as a build tunes them."""

__all__ = ["tuned"]

from collections.abc import Sequence

import torch

from quantrt.gpu import GpuFacts
from quantrt.kernels.kernel import CompiledKernel, KernelSpec
from quantrt.tactics.cuda.candidates import list_tactics
from quantrt.tactics.cuda.tactic import Workload
from quantrt.tactics.cuda.tuning.choices import Choices
from quantrt.tactics.cuda.tuning.tune import TuneOptions, tune


def tuned(
    workloads: Sequence[Workload],
    gpu: GpuFacts,
    options: TuneOptions | None = None,
    kernels: dict[KernelSpec, CompiledKernel] | None = None,
) -> Choices:
    """What a build would take for each, and the times of all that it tries.

    Args:
        kernels: what is compiled already; added to.
    """
    tactics = {workload.region: list_tactics(workload, gpu) for workload in workloads}
    device = torch.device("cuda")
    return tune(workloads, tactics, gpu=gpu, device=device, options=options or TuneOptions(), kernels=kernels)
