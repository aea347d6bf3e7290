# SPDX-License-Identifier: Apache-2.0
"""The candidates of a build: every precision on every library that can run it, opened."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack

import numpy as np

from quantrt.errors import ModelError
from quantrt.prepare import Event, Job, Quantized
from quantrt.quantize.explicit.read import target_of_own
from quantrt.quantize.fit.fit import Fitted, keeps_scales
from quantrt.tactics.candidates import Candidate, Opener, Rejected, Spec, lacking_specs, list_specs
from quantrt.tactics.few_floats import why_left_out
from quantrt.tactics.time_candidates import HALVES
from quantrt.yardstick import Lost

__all__ = ["make_opener", "open_candidates", "open_one"]


def make_opener(job: Job, quantized: Quantized, inputs: Mapping[str, np.ndarray]) -> Opener:
    """What makes the candidates of a build; mixed ones too, with the kernels that were timed before."""
    own = (
        quantized.fits["cuda", target_of_own(job.model).precision].model.graph
        if keeps_scales(job.model, job.config)
        else None
    )
    return Opener(
        job.model,
        job.config,
        inputs,
        job.on_kernels,
        float_graph=own,
        weight_only=None if quantized.weight_only is None else quantized.weight_only.graph,
    )


def open_candidates(
    job: Job,
    fits: Mapping[tuple[str, str], Fitted],
    opener: Opener,
    stack: ExitStack,
    lost: Lost | None = None,
) -> tuple[dict[str, Candidate], tuple[Rejected, ...]]:
    """Every spec that its library can run, open until the stack closes; an error when FP32 runs nowhere.

    Args:
        lost: how FP32 was behind in an earlier build: it is left out, unless nothing else is there.
    """
    opened: dict[str, Candidate] = {}
    rejected = [*lacking_specs(job.config, job.device)]
    specs = list_specs(job.config, job.device)
    for done, spec in enumerate(specs):
        job.emit(Event("opening", done, len(specs), "candidates", spec.name))
        if lost is not None and spec.precision == "fp32":
            opener.expect_finite()
            rejected.append(Rejected(spec, lost.reason, "left out"))
            continue
        needless = why_left_out(spec, opened)
        if needless is not None:
            rejected.append(Rejected(spec, needless, "left out"))
            continue
        found = open_one(spec, opener, fits)
        if isinstance(found, Rejected):
            rejected.append(found)
        else:
            opened[spec.name] = found
            stack.callback(found.executor.close)
    job.emit(Event("opening", len(specs), len(specs), "candidates"))
    precisions = {candidate.spec.precision for candidate in opened.values()}
    if lost is not None:
        has_yardstick = not precisions.isdisjoint(HALVES)
        return (opened, tuple(rejected)) if has_yardstick else open_candidates(job, fits, opener, stack)
    if "fp32" not in precisions:
        reasons = "; ".join(f"{item.spec.name}: {item.reason}" for item in rejected)
        hint = next((item.hint for item in rejected if item.hint is not None), None)
        raise ModelError("no library can run this model in FP32", got=reasons, hint=hint)
    return opened, tuple(rejected)


def open_one(spec: Spec, opener: Opener, fits: Mapping[tuple[str, str], Fitted]) -> Candidate | Rejected:
    """One spec, of the quantized model for it where it has codes."""
    if not spec.has_codes:
        return opener.open(spec, None)
    fitted = fits.get((spec.library, spec.precision))
    if fitted is None or not fitted.model.has_int8:
        return Rejected(spec, "no node of the model can be quantized for it")
    return opener.open(spec, fitted)
