# SPDX-License-Identifier: Apache-2.0
"""First layers and the max pool behind each, which one kernel may compute."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from quantrt.gpu import GpuFacts
from quantrt.regions.region import Conv, Pool, PooledConv
from quantrt.tactics.cuda.convolutions.pooled_conv import why_not
from quantrt.tactics.cuda.fold.pairs import Pair, only_reader
from quantrt.tactics.cuda.program.frame import Frame
from quantrt.tactics.cuda.tactic import TensorFacts

__all__ = ["find_pooled"]

PATTERN = "pool behind a convolution"
_POOLED = ", pooled"


def find_pooled(frame: Frame, facts: Mapping[str, TensorFacts], gpu: GpuFacts) -> list[Pair]:
    """Every convolution and the pool behind it that a kernel computes as one on the GPU.

    Args:
        facts: of every buffer.
    """
    found = []
    for item in frame.items:
        lowered = item.lowered
        if lowered is None or not isinstance(lowered.formula, Conv):
            continue
        reader = only_reader(item, frame)
        pool = None if reader is None else reader.lowered
        if (
            reader is None
            or pool is None
            or not isinstance(pool.formula, Pool)
            or pool.types != lowered.types
        ):
            continue
        name = reader.region + _POOLED
        region = replace(lowered.region, name=name, nodes=(*lowered.region.nodes, *pool.region.nodes))
        formula = PooledConv(lowered.formula, pool.formula)
        one = replace(lowered, region=region, formula=formula, outputs=pool.outputs)
        fused = replace(item, region=name, outputs=reader.outputs, lowered=one)
        workload = one.workload([facts[buffer] for buffer in item.inputs])
        if why_not(workload, gpu) is None:
            found.append(Pair(item, reader, fused, workload, PATTERN))
    return found
