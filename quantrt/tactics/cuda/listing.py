# SPDX-License-Identifier: Apache-2.0
"""The tactics of all workloads of a program, as far as the configuration, the GPU and its libraries go."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import torch

from quantrt.config import CudaConfig
from quantrt.gpu import GpuFacts
from quantrt.ir.collector import without_collector
from quantrt.regions.region import Conv
from quantrt.tactics.cuda.candidates import list_tactics
from quantrt.tactics.cuda.convolutions.cudnn_graph import without_graphs
from quantrt.tactics.cuda.convolutions.cudnn_plans import why_no_plans, why_not_at
from quantrt.tactics.cuda.padding.live_rows import stopping
from quantrt.tactics.cuda.program.wide import Wide, without_half_sums
from quantrt.tactics.cuda.tactic import Rejected, Tactic, Workload, see_weights
from quantrt.tactics.cuda.tuning.estimate import work_of
from quantrt.tactics.cuda.tuning.targets import with_least_shared_memory

__all__ = ["Listing"]


@dataclass(frozen=True)
class Listing:
    """What tactics depend on beside the workload.

    Attributes:
        targets: compute capabilities that the engine is for too.
        device: the GPU; None where it is not here.
    """

    config: CudaConfig
    gpu: GpuFacts
    targets: tuple[int, ...]
    device: torch.device | None

    @without_collector()
    def of(
        self, workloads: Sequence[Workload], wide: Wide, may_code: Collection[str]
    ) -> dict[str, list[Tactic | Rejected]]:
        """The tactics of every workload, by its region.

        Args:
            wide: what halves are too narrow for.
            may_code: regions whose attention may make codes of the floats that it reads.
        """
        gpu = with_least_shared_memory(self.gpu, self.targets)
        see_weights(workloads)
        return {workload.region: self._listed(workload, gpu, wide, may_code) for workload in workloads}

    def _listed(
        self, workload: Workload, gpu: GpuFacts, wide: Wide, may_code: Collection[str]
    ) -> list[Tactic | Rejected]:
        """All tactics, but for those that cuDNN would have to be asked for where it cannot be."""
        others = [target for target in self.targets if target != self.gpu.capability]
        level, excluded = self.config.builder_optimization_level, self.config.exclude_tactic_sources
        listed = list_tactics(workload, gpu, allows_coded_attention=workload.region in may_code)
        if workload.live_rows is not None:
            listed = stopping(listed, workload.formula)
        if workload.region in wide.sums and workload.inputs[0].dtype == "float16":
            listed = without_half_sums(listed)
        if not isinstance(workload.formula, Conv):
            return listed
        products = work_of(workload).products
        reason = why_not_at(level, excluded, products) or why_no_plans(self.device, others)
        return without_graphs(listed, reason) if reason else listed
