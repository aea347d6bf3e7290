# SPDX-License-Identifier: Apache-2.0
"""Codes beside 16-bit floats that were left out, opened after all where mixes may start from them.

Beside nothing but codes these floats gain nothing (quantrt.tactics.few_floats). In a mix of both they do,
where codes alone are outside the budget, or take no less than the floats do.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence

from quantrt.mix.contest import Contest
from quantrt.opening import open_one
from quantrt.prepare import Event, Job
from quantrt.quantize.fit.fit import Fitted
from quantrt.tactics.candidates import Rejected, Spec
from quantrt.tactics.few_floats import codes_beside_fp32

__all__ = ["open_late"]

log = logging.getLogger(__name__)


def open_late(
    job: Job, contest: Contest, rejected: Sequence[Rejected], fits: Mapping[tuple[str, str], Fitted]
) -> tuple[str, ...]:
    """Add those to the candidates of the contest, which has to be held again; their names.

    Args:
        rejected: they are among these, as "left out".
    """
    added = []
    for item in rejected:
        if item.status == "left out" and item.spec.has_codes and _is_wanted(job, contest, item.spec):
            job.emit(Event("opening", 0, 1, "candidates", item.spec.name))
            found = open_one(item.spec, contest.opener, fits)
            if isinstance(found, Rejected):
                log.warning("%s cannot be opened after all: %s", item.spec.name, found.reason)
                continue
            contest.candidates[item.spec.name] = found
            added.append(item.spec.name)
    return tuple(added)


def _is_wanted(job: Job, contest: Contest, spec: Spec) -> bool:
    """Whether the same codes beside FP32 are outside the budget, or no faster than 16-bit floats."""
    codes = codes_beside_fp32(spec)
    floats = Spec(spec.library, spec.float_precision, spec.float_precision).name
    latencies, verdict = contest.latencies, contest.choice.verdicts.get(codes)
    if not job.config.assign.mixed or verdict is None:
        return False
    is_slow = floats in latencies and latencies[codes].median_ms >= latencies[floats].median_ms
    return is_slow or verdict.status == "over budget"
