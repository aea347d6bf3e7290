# SPDX-License-Identifier: Apache-2.0
"""Which tactics of a workload are worth compiling and timing at a level of effort."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from itertools import chain, zip_longest

from quantrt.tactics.cuda.tactic import DEQUANTIZED, REFERENCE, Rejected, Tactic

__all__ = ["FLOAT_LEVELS", "LEVELS", "Pruned", "prune"]

DETOUR_LEVEL = 4
"""Builder optimization level from which products of codes are tried as floats beside kernels that multiply
codes: such detours convert twice, and are there for codes that no kernel multiplies."""

LEVELS = (2, 2, 5, 10, 24, None)
"""Most tactics per workload at builder optimization level 0 to 5; None is all. Level 0 has a second one for
when the first turns out wrong, and times neither."""

FLOAT_LEVELS = (2, 2, 5, 8, 24, None)
"""The same of products with weights in floats, for which libraries have good kernels too."""


@dataclass(frozen=True)
class Pruned:
    """The tactics of one workload, sorted.

    Attributes:
        kept: to try, the likely fastest first, sources in turn; without the reference.
        reference: the tactic that computes anything.
        rejected: the others, with reasons.
    """

    kept: tuple[Tactic, ...]
    reference: Tactic | None
    rejected: tuple[Rejected, ...]


def prune(
    tactics: Sequence[Tactic | Rejected],
    level: int,
    *,
    is_float: bool = False,
    workspace_limit_bytes: int | None = None,
    excluded_sources: Collection[str] = (),
) -> Pruned:
    """Sort out what is excluded, too large, or too much for the level.

    Args:
        tactics: of each source, the likely fastest first.
        level: 0 to 5.
        is_float: whether it is a product with weights in floats.
        workspace_limit_bytes: None is no limit.
    """
    rejected = [found for found in tactics if isinstance(found, Rejected)]
    legal: list[Tactic] = []
    reference: Tactic | None = None
    for tactic in (found for found in tactics if isinstance(found, Tactic)):
        reason = _why_not(tactic, workspace_limit_bytes, excluded_sources)
        if tactic.name == REFERENCE:
            reference = tactic
        elif reason:
            rejected.append(Rejected(tactic.source, tactic.name, reason))
        else:
            legal.append(tactic)
    direct = [tactic for tactic in legal if not _is_detour(tactic)]
    if direct and level < DETOUR_LEVEL:
        reason = f"converts codes to floats: tried from level {DETOUR_LEVEL} on"
        rejected += [Rejected(one.source, one.name, reason) for one in legal if _is_detour(one)]
        legal = direct
    ordered = _in_turns(legal)
    limit = (FLOAT_LEVELS if is_float else LEVELS)[level]
    late = () if limit is None else ordered[limit:]
    reason = f"not among the {limit} candidates that level {level} tries"
    rejected += [Rejected(tactic.source, tactic.name, reason) for tactic in late]
    return Pruned(ordered[: len(ordered) - len(late)], reference, tuple(rejected))


def _why_not(tactic: Tactic, limit_bytes: int | None, excluded: Collection[str]) -> str:
    if tactic.source in excluded:
        return f"tactic source '{tactic.source}' is excluded"
    if limit_bytes is not None and tactic.workspace_bytes > limit_bytes:
        return f"needs {tactic.workspace_bytes} bytes of workspace, more than the {limit_bytes} allowed"
    return ""


def _is_detour(tactic: Tactic) -> bool:
    """Whether codes are multiplied as floats."""
    return DEQUANTIZED in tactic.name.split()


def _in_turns(tactics: Sequence[Tactic]) -> tuple[Tactic, ...]:
    """The first of every source, then the second of every source, and so on."""
    sources: dict[str, list[Tactic]] = {}
    for tactic in tactics:
        sources.setdefault(tactic.source, []).append(tactic)
    rounds = zip_longest(*sources.values())
    return tuple(tactic for tactic in chain.from_iterable(rounds) if tactic is not None)
