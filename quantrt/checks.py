# SPDX-License-Identifier: Apache-2.0
"""What is checked of a candidate before it ships: its accuracy, and that every batch size is right.

That accuracy can be measured at all is checked before anything takes time.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import replace
from pathlib import Path

from quantrt.assign.accuracy.accuracy import Accuracy, Run
from quantrt.assign.accuracy.batch_sizes import trials, why_wrong
from quantrt.assign.accuracy.checked import BATCH_SIZE, Checked
from quantrt.assign.accuracy.class_labels import metric_of_data
from quantrt.assign.accuracy.kept_sizes import KeptSizes
from quantrt.assign.accuracy.metric import Metric
from quantrt.assign.accuracy.replayed import Replayed
from quantrt.assign.accuracy.try_metric import try_metric
from quantrt.bind import unbound
from quantrt.calibrate.dataset import Batch, Dataset
from quantrt.calibrate.usual_sizes import made_up_data
from quantrt.config import Budget, BuildConfig
from quantrt.errors import DeviceError
from quantrt.ir.profile import read_profiles
from quantrt.model.model import Model
from quantrt.prepare import Event, Job, OnEvent
from quantrt.runtime.executor import Executor, ExecutorContext, open_executor
from quantrt.tactics.candidates import Candidate
from quantrt.tactics.sample_lanes import lanes_of

__all__ = ["make_checker", "make_size_checker", "tried_metric"]

log = logging.getLogger(__name__)


def tried_metric(
    budget: Budget,
    model: Model,
    config: BuildConfig,
    *,
    samples: Dataset | None,
    truth: Dataset | None,
    emit: OnEvent,
) -> tuple[Metric, Checked]:
    """The metric of a budget, and its samples; a function of the user's has scored the float model.

    Args:
        samples, truth: calibration and validation data.

    Raises:
        UsageError: there is no such metric, it needs labels that are not there, or it fails.
        DataError: top1, and the labels are none that the model's outputs can have.
    """

    def on_progress(done: int, total: int | None) -> None:
        emit(Event("trying the metric", done, total, "samples"))

    metric = metric_of_data(budget.metric, truth, model.outputs)
    checked = Checked.choose(truth, samples, config, model)
    try_metric(metric, checked, model.graph, on_progress)
    return metric, checked


def make_checker(
    candidates: Mapping[str, Candidate], metric: Metric, checked: Checked, job: Job, stack: ExitStack
) -> Callable[[str], Accuracy | None]:
    """Measures one candidate against the FP32 candidate that opened first, which runs once on a batch.

    What is surely outside the budget is not measured to the end, and what is inside it beside no more of FP32
    than that takes.

    Args:
        stack: closes what is opened for it.
    """
    model = job.model
    names = [output.name for output in model.outputs]

    @functools.cache
    def first() -> Batch | None:
        return next(checked.batches(lambda done, total: None), None)

    def opened(candidate: Candidate, stack: ExitStack) -> tuple[Run, int]:
        batch = first()
        runner = candidate.executor if batch is None else lanes_of(candidate, names, batch.inputs, stack)
        return unbound(runner.run, model.outputs, model.bindings), runner.parallel_runs

    @functools.cache  # opened where there is something to check
    def floats() -> Replayed:
        run, lanes = opened(_float_candidate(candidates), stack)
        return Replayed(run, lanes=lanes)

    def check(name: str) -> Accuracy | None:
        def on_progress(done: int, total: int | None) -> None:
            job.emit(Event("checking", done, total, "samples", name))

        on_progress(0, None)
        if checked.data is None:
            return None
        with ExitStack() as brief:
            run, lanes = opened(candidates[name], brief)
            # The figures of tables are for other budgets too, and those of mixes for what is mixed next.
            is_spared = job.config.assign.tables is None and not candidates[name].spec.is_mixed
            return checked.measure(
                metric,
                floats(),
                run,
                on_progress,
                max_drop_ratio=job.config.budget.max_drop_ratio,
                is_spared=is_spared,
                lanes=lanes,
            )

    return check


def _float_candidate(candidates: Mapping[str, Candidate]) -> Candidate:
    return next(candidate for candidate in candidates.values() if candidate.spec.precision == "fp32")


def make_size_checker(
    job: Job,
    candidates: Mapping[str, Candidate],
    data: Dataset | None,
    environment: Mapping[str, str] | None = None,
    floats: Callable[[], Executor] | None = None,
) -> Callable[[str], str | None]:
    """Tells what a candidate computes wrongly at other batch sizes than its accuracy is measured at.

    Args:
        environment: what the values of a GPU's programs depend on beside these: where there is a timing cache
            too, what was found right is kept, and not run by a later build.
        floats: FP32, opened where sizes differ; by default that of the candidates.
    """
    model = job.model
    data = data or made_up_data(model, BATCH_SIZE, 0)
    if not data.layout.is_batched or data.layout.fixed_batch is not None:
        return lambda name: None
    rows = _usual_rows(job)
    samples = next(iter(data.batches(rows, rows))).inputs
    tried = trials(samples, rows, read_profiles(job.config.cuda.profiles, model.inputs))
    names = [output.name for output in model.outputs]
    timed = () if job.config.device.device == "cuda" else (job.config.bench.batch or 1,)
    path = job.config.cuda.timing_cache
    kept = None if path is None or environment is None else KeptSizes(Path(path), environment)

    @functools.cache
    def floating() -> Executor:
        return _float_candidate(candidates).executor if floats is None else floats()

    def run_all(found: Candidate) -> str | None:
        with closing(_fresh(found, names)) as fresh:
            run, usual, float_run = (
                unbound(one, model.outputs, model.bindings)
                for one in (fresh.run, found.executor.run, lambda inputs: floating().run(inputs))
            )
            faults = (
                why_wrong(each, float_run, replace(trial, sizes=sizes), wanted)
                for trial in tried
                for wanted in (usual(trial.inputs),)
                for each, sizes in ((run, trial.sizes), (usual, timed))
            )
            return next((fault for fault in faults if fault is not None), None)

    @functools.cache  # it is asked for again once a mixed candidate is there
    def check(name: str) -> str | None:
        found = candidates[name]
        key = None if kept is None else kept.key(found.model, [*names, repr(model.bindings)], tried)
        if kept is not None and key is not None and kept.is_right(key):
            return None
        try:
            fault = run_all(found)
        except DeviceError as error:  # a GPU holds every candidate now, and later one alone
            log.warning("%s was not checked at every batch size: %s", name, error.message)
            return None
        if kept is not None and key is not None and fault is None:
            kept.keep(key, tried)
        return fault

    return check


def _fresh(candidate: Candidate, names: Sequence[str]) -> Executor | ExecutorContext:
    """The engine before it has seen any shape; on a GPU beside the weights that are there.

    Of OpenVINO what it compiles for any shape: the candidate has what it compiles for one.
    """
    if candidate.spec.library == "cuda":
        return candidate.executor.create_context()
    if candidate.spec.library == "openvino":
        from quantrt.runtime.openvino.guarded import GuardedOpenVino  # heavy

        return GuardedOpenVino(candidate.model, candidate.options, output_names=names, own_shapes=0)
    return open_executor(candidate.model, candidate.options, output_names=names)


def _usual_rows(job: Job) -> int:
    """Samples at once; on a GPU no more than are timed, or two, for there may be no memory for more."""
    is_gpu = job.config.device.device == "cuda"
    return min(BATCH_SIZE, max(2, job.config.bench.batch or 1)) if is_gpu else BATCH_SIZE
