# SPDX-License-Identifier: Apache-2.0
"""A metric of the user's, tried on the float model's outputs before a build takes its time.

A first batch is enough to see most of what can be wrong with a function. Some need more samples, such as one
that wants two classes at least: where it fails on a first batch it gets the outputs for ever more of them,
and what it says of all is final.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import onnx_ir as ir

from quantrt.assign.accuracy.accuracy import Run
from quantrt.assign.accuracy.checked import Checked
from quantrt.assign.accuracy.collected import Collected
from quantrt.assign.accuracy.metric import Metric
from quantrt.calibrate.records import Layout
from quantrt.errors import DataError, ModelError, UsageError
from quantrt.ir.session import ORT_ERRORS, float_session

__all__ = ["session_run", "try_metric"]

log = logging.getLogger(__name__)

GROWTH = 4
"""Of the samples that a function gets, from try to try: a correlation needs a few, a rare class many."""

Arrays = Mapping[str, np.ndarray[Any, Any]]
Part = tuple[Arrays, Arrays, int]
"""Outputs, labels, and how many samples they are of."""


def try_metric(
    metric: Metric, checked: Checked, floats: ir.Model, on_progress: Callable[[int, int | None], None]
) -> None:
    """Score the float model with a function of the user's.

    Without samples it is not needed, and what ONNX Runtime cannot run the build itself tells of.

    Args:
        checked: the samples that accuracy is measured on.
        floats: the float model.
        on_progress: called with (samples done, samples in all or None).

    Raises:
        UsageError: the metric fails on all samples, returns no number, or NaN; with what it was given.
    """
    if not metric.is_users or checked.data is None:
        return
    try:
        _score_growing(metric, _outputs(checked, session_run(floats), on_progress))
    except ModelError as error:
        log.info("the metric '%s' is not tried before the build: %s", metric.name, error.message)


def _score_growing(metric: Metric, parts: Iterator[Part]) -> None:
    """Score the first part alone, then ever more of them together until that works."""
    outputs, labels = Collected(), Collected()
    samples = tried = 0
    failure: UsageError | None = None
    for made, truth, count in parts:
        if failure is not None and samples == outputs.counts[0]:
            text = "%s on the first %d samples (%s): it is tried on more, before anything is built"
            log.warning(text, failure.message, samples, failure.got)
        outputs.add(made, count)
        labels.add(truth, count)
        samples += count
        if samples < GROWTH * tried:
            continue
        tried = samples
        try:
            score = metric.float_score(outputs.joined(), labels.joined())
        except UsageError as error:
            failure = error
            continue
        text = "the metric '%s' of the float model is %.6g on the first %d samples"
        log.info(text, metric.name, score, samples)
        return
    if failure is not None and tried == samples:
        raise failure
    if samples:
        metric.float_score(outputs.joined(), labels.joined())


def _outputs(checked: Checked, run: Run, on_progress: Callable[[int, int | None], None]) -> Iterator[Part]:
    """One batch after the other, without rows that only pad it."""
    layout = Layout(is_batched=True, fixed_batch=checked.batch_size)
    for batch in checked.batches(on_progress):
        made = run(batch.inputs)
        yield (
            {name: layout.own_rows(array, batch.count) for name, array in made.items()},
            batch.labels,
            batch.count,
        )


def session_run(graph: ir.Model, *, optimize: bool = True, keep_floats: bool = True) -> Run:
    """A run of a graph in ONNX Runtime; options as of `float_session`.

    Raises:
        ModelError: ONNX Runtime refuses the model; the run itself raises DataError.
    """
    session = float_session(graph, optimize=optimize, keep_floats=keep_floats)
    names = [output.name for output in session.get_outputs()]
    wanted = {value.name for value in session.get_inputs()}

    def run(inputs: Arrays) -> Arrays:
        try:
            made = session.run(names, {name: array for name, array in inputs.items() if name in wanted})
        except ORT_ERRORS as error:
            text = str(error).strip()
            raise DataError("ONNX Runtime cannot run the model on these data", got=text) from error
        return dict(zip(names, made, strict=True))

    return run
