# SPDX-License-Identifier: Apache-2.0
"""First layers with the max pool behind them in one kernel, where that is measured faster than both apart."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from quantrt.gpu import GpuFacts
from quantrt.regions.region import Conv, Mismatch, Pool, PooledConv
from quantrt.tactics.cuda.assemble import Item
from quantrt.tactics.cuda.choices import Choice, Choices
from quantrt.tactics.cuda.frame import Frame
from quantrt.tactics.cuda.pooled_conv import why_not
from quantrt.tactics.cuda.prune import REFERENCE
from quantrt.tactics.cuda.tactic import TensorFacts, Workload

__all__ = ["PooledPair", "find_pooled", "take_pooled"]

MEASURED = ("timed", "cached")
LAUNCH_US = 5.0
"""Of a graph, in every time of a kernel alone: two kernels have it twice, those of an engine hardly at all
(docs/decisions/0019)."""

PATTERN = "pool behind a convolution"
_POOLED = ", pooled"


@dataclass(frozen=True)
class PooledPair:
    """A convolution, and the pool that alone reads what it stores.

    Attributes:
        fused: both as one, in a region of another name.
        workload: its.
    """

    convolution: Item
    pool: Item
    fused: Item
    workload: Workload


def find_pooled(frame: Frame, facts: Mapping[str, TensorFacts], gpu: GpuFacts) -> list[PooledPair]:
    """Every pair that a kernel computes as one on the GPU.

    Args:
        facts: of every buffer.
    """
    kept = {buffer for _, buffer, _ in frame.program.outputs} | frame.places.keys()
    found = []
    for item in frame.items:
        lowered = item.lowered
        if lowered is None or not isinstance(lowered.formula, Conv) or kept.intersection(item.outputs):
            continue
        readers = [other for other in frame.items if set(item.outputs) & set(other.inputs)]
        pool = None if len(readers) != 1 or len(item.outputs) != 1 else readers[0].lowered
        if pool is None or not isinstance(pool.formula, Pool) or pool.types != lowered.types:
            continue
        name = readers[0].region + _POOLED
        region = replace(lowered.region, name=name, nodes=(*lowered.region.nodes, *pool.region.nodes))
        formula = PooledConv(lowered.formula, pool.formula)
        one = replace(lowered, region=region, formula=formula, outputs=pool.outputs)
        fused = replace(item, region=name, outputs=readers[0].outputs, lowered=one)
        workload = one.workload([facts[buffer] for buffer in item.inputs])
        if why_not(workload, gpu) is None:
            found.append(PooledPair(item, readers[0], fused, workload))
    return found


def take_pooled(
    frame: Frame, choices: Choices, pairs: Sequence[PooledPair]
) -> tuple[Frame, Choices, tuple[Mismatch, ...]]:
    """The frame and the choices with the pairs as one that are faster so; of the others, why not."""
    by_region, items = dict(choices.by_region), list(frame.items)
    mismatches = []
    for pair in pairs:
        together = by_region.pop(pair.fused.region)
        apart = [by_region[item.region] for item in (pair.convolution, pair.pool)]
        reason = _why_not_together(together, apart)
        if reason:
            mismatches.append(Mismatch(PATTERN, reason, pair.pool.region))
            continue
        del by_region[pair.convolution.region]
        by_region[pair.pool.region] = together
        items[items.index(pair.pool)] = replace(pair.fused, region=pair.pool.region)
        items.remove(pair.convolution)
    used = {spec for x in by_region.values() for draft in x.tactic.drafts for spec in draft.kernels}
    kernels = {spec: kernel for spec, kernel in choices.kernels.items() if spec in used}
    return (
        replace(frame, items=tuple(items)),
        replace(choices, by_region=by_region, kernels=kernels),
        tuple(mismatches),
    )


def _why_not_together(together: Choice, apart: Sequence[Choice]) -> str:
    """Why what is measured of both speaks against it; empty where it speaks for it."""
    if together.tactic.name == REFERENCE:
        return "no kernel that computes both is right here"
    if any(choice.origin not in MEASURED for choice in (together, *apart)):
        return "not timed"
    together_us, apart_us = (sum(choice.median_us or 0.0 for choice in x) for x in ([together], apart))
    if together_us >= apart_us - LAUNCH_US:
        told = f"{apart_us:.1f} us apart, {LAUNCH_US} of them a launch"
        return f"no faster on this GPU: {together_us:.1f} us together, {told}"
    return ""
