# SPDX-License-Identifier: Apache-2.0
"""Two regions as one, where that is measured faster than both apart."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from quantrt.regions.region import Mismatch
from quantrt.tactics.cuda.program.assemble import Item
from quantrt.tactics.cuda.program.frame import Frame
from quantrt.tactics.cuda.tactic import REFERENCE, Workload
from quantrt.tactics.cuda.tuning.choices import Choice, Choices

__all__ = ["Pair", "only_reader", "take_pairs"]

MEASURED = ("timed", "cached")
LAUNCH_US = 5.0
"""Of a graph, in every time of a kernel alone: two kernels have it twice, those of an engine hardly at all
(docs/decisions/0019)."""


@dataclass(frozen=True)
class Pair:
    """A region, and the one that alone reads what it stores.

    Attributes:
        first, second: in the order they run.
        fused: both as one, in a region of another name.
        workload: its.
        pattern: what it is called where it stays two.
    """

    first: Item
    second: Item
    fused: Item
    workload: Workload
    pattern: str


def only_reader(item: Item, frame: Frame) -> Item | None:
    """The region that alone reads the one thing that another stores, which is nothing but memory for it."""
    kept = {buffer for _, buffer, _ in frame.program.outputs} | frame.places.keys()
    readers = [other for other in frame.items if set(item.outputs) & set(other.inputs)]
    is_alone = len(readers) == 1 and len(item.outputs) == 1 and not kept.intersection(item.outputs)
    return readers[0] if is_alone else None


def take_pairs(
    frame: Frame, choices: Choices, pairs: Sequence[Pair]
) -> tuple[Frame, Choices, tuple[Mismatch, ...]]:
    """The frame and the choices with the pairs as one that are faster so; of the others, why not.

    A pair that is one has the name of its second region.

    Args:
        pairs: no region is in two of them.
    """
    by_region, items = dict(choices.by_region), list(frame.items)
    mismatches = []
    for pair in pairs:
        together = by_region.pop(pair.fused.region)
        apart = [by_region[item.region] for item in (pair.first, pair.second)]
        reason = _why_not_together(together, apart)
        if reason:
            mismatches.append(Mismatch(pair.pattern, reason, pair.second.region))
            continue
        del by_region[pair.first.region]
        by_region[pair.second.region] = together
        items[items.index(pair.second)] = replace(pair.fused, region=pair.second.region)
        items.remove(pair.first)
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
