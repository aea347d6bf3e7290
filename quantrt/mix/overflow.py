# SPDX-License-Identifier: Apache-2.0
"""Engines of halves that overflow on some samples are made again, with what overflows there in FP32.

What halves are too narrow for is seen on the samples that are timed. Others may reach farther: accuracy is
checked on these, and finds out.
"""

from __future__ import annotations

import itertools
import logging
import math
from collections.abc import Iterator, Mapping

import numpy as np

from quantrt.assign.accuracy.checked import Checked
from quantrt.mix.contest import Contest
from quantrt.prepare import Event, Job
from quantrt.tactics.candidates import Rejected, first_not_finite

__all__ = ["mend_overflows"]

log = logging.getLogger(__name__)

MOST_BATCHES = 16
"""Of samples on which one engine overflows: what these show, with headroom, is taken for all."""


def mend_overflows(job: Job, contest: Contest, checked: Checked) -> tuple[str, ...]:
    """Open candidates anew that overflow where FP32 does not; the names of those that were.

    Args:
        contest: its candidates that were checked and found not finite are closed and replaced.
        checked: what they were checked on.
    """
    candidates, opener = contest.candidates, contest.opener
    broken = [name for name in contest.choice.verdicts if _is_broken(contest, name)]
    if not broken:
        return ()
    samples = [inputs for name in broken for inputs in _overflowing(job, contest, checked, name)]
    if not opener.widen([candidates[name].spec for name in broken], samples):
        log.warning("%s: not finite where FP32 is, and not for the range of fp16", ", ".join(broken))
        return ()
    mended = []
    for name in broken:
        found = opener.open(candidates[name].spec, candidates[name].fitted)
        if isinstance(found, Rejected):
            log.warning("%s overflows, and cannot be made with more in FP32: %s", name, found.reason)
            continue
        candidates[name].executor.close()
        candidates[name] = found
        mended.append(name)
    return tuple(mended)


def _is_broken(contest: Contest, name: str) -> bool:
    """Whether a candidate of halves was checked, and something in its outputs is not finite."""
    spec, accuracy = contest.candidates[name].spec, contest.choice.verdicts[name].accuracy
    is_of_halves = spec.library == "cuda" and spec.float_precision == "fp16"
    return is_of_halves and accuracy is not None and math.isinf(accuracy.drop_ratio)


def _overflowing(
    job: Job, contest: Contest, checked: Checked, name: str
) -> Iterator[Mapping[str, np.ndarray]]:
    """Samples on which outputs of a candidate are not finite where those of FP32 are."""
    floats = contest.candidates[contest.choice.baseline].executor
    executor = contest.candidates[name].executor
    found = (
        batch.inputs
        for batch in checked.batches(
            lambda done, total: job.emit(Event("finding overflows", done, total, "samples"))
        )
        if first_not_finite(executor.run(batch.inputs), floats.run(batch.inputs)) is not None
    )
    return itertools.islice(found, MOST_BATCHES)
