# SPDX-License-Identifier: Apache-2.0
"""Attention in 8 bits is a choice of its own: where it takes an engine out of the budget, it is taken back.

What codes of queries, keys and values cost is not known from ranges, and no product of the model has to be in
8 bits for it. An engine is first made with them where they are faster; one that is outside the budget is made
again with attention in floats, and takes its place.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from dataclasses import replace

from quantrt.mix.contest import Contest
from quantrt.prepare import Job
from quantrt.report.engine_layers.program import coded_attention
from quantrt.tactics.candidates import Candidate, Rejected

__all__ = ["keep_attention_float", "told_attention"]

log = logging.getLogger(__name__)


def keep_attention_float(job: Job, contest: Contest) -> tuple[str, ...]:
    """Open candidates anew whose attention is in 8 bits and that are outside the budget; their names.

    Args:
        contest: its candidates that are opened anew are closed and replaced.
    """
    candidates = contest.candidates
    found = []
    for name, verdict in contest.choice.verdicts.items():
        one = candidates[name]
        if verdict.status != "over budget" or not _has_coded_attention(one):
            continue
        opened = contest.opener.open(replace(one.spec, float_attention=True), one.fitted)
        if isinstance(opened, Rejected):
            log.warning("%s cannot be made with attention in floats: %s", name, opened.reason)
            continue
        log.info("%s: attention stays in floats: %s", name, verdict.reason)
        one.executor.close()
        candidates[name] = opened
        found.append(name)
    return tuple(found)


def told_attention(candidates: Mapping[str, Candidate]) -> Iterator[str]:
    """A note for every candidate whose attention was taken back to floats."""
    for name, one in candidates.items():
        if one.spec.float_attention and not one.spec.is_mixed:
            yield f"{name}: attention is in floats: with it in 8 bits this was outside the budget"


def _has_coded_attention(candidate: Candidate) -> bool:
    """Whether attention makes codes of floats in its program."""
    is_possible = candidate.spec.library == "cuda" and candidate.spec.has_codes
    return is_possible and bool(coded_attention(candidate.model))
