# SPDX-License-Identifier: Apache-2.0
"""Time open candidates on the inputs that the engine is for."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial

import numpy as np

from quantrt.calibrate.dataset import Dataset
from quantrt.config import BenchConfig, BuildConfig
from quantrt.errors import UsageError
from quantrt.ir.profile import at_shapes, read_profiles
from quantrt.ir.tensor_spec import TensorSpec
from quantrt.runtime.executor import Executor, HasClock
from quantrt.tactics.candidates import Candidate
from quantrt.tactics.parallel import RUNS_PER_LANE, parallel_runs
from quantrt.tactics.race import race
from quantrt.tactics.timing import Latency, TimesItself

__all__ = ["HALVES", "time_candidates", "timed_inputs"]

HALVES = ("fp16", "bf16")
"""Precisions of 16-bit floats."""

OWN_CLOCK_RATIO = 1 / 30
"""Of the seconds asked for, what is spent where candidates time themselves: their times spread much less."""

SEARCH_RATIO, SEARCH_MAX_RATIO = 1 / 8, 1 / 10
"""The same by the host's clock, and of the seconds at most."""


def timed_inputs(
    data: Dataset,
    specs: Sequence[TensorSpec],
    batch_size: int | None,
    profiles: Sequence[str] = (),
) -> dict[str, np.ndarray]:
    """One batch of samples, repeated to the batch size.

    Args:
        specs: the model's inputs.
        batch_size: None for 1, or for the size the model insists on.
        profiles: as in CudaConfig; of the first, the best shapes are what samples are cut or repeated to.

    Raises:
        UsageError: the model has another batch size, or none; or a profile does not suit it.
    """
    found = _samples(data, batch_size)
    best = [profile.best for profile in read_profiles(profiles, specs)]
    return at_shapes(found, best[0]) if best else found


def _samples(data: Dataset, batch_size: int | None) -> dict[str, np.ndarray]:
    """One batch of samples, repeated to the batch size."""
    rows = batch_size or 1
    fixed = data.layout.fixed_batch if data.layout.is_batched else 1
    if batch_size is not None and fixed not in (None, batch_size):
        raise UsageError(
            "cannot time this model at another batch size than its own",
            got=str(batch_size),
            expected=str(fixed),
        )
    batch = next(iter(data.batches(rows, rows)))
    if batch.count >= rows or fixed is not None:
        return batch.inputs
    repeated = np.resize(np.arange(batch.count), rows)
    return {name: array[repeated] for name, array in batch.inputs.items()}


def time_candidates(
    candidates: Mapping[str, Candidate],
    inputs: Mapping[str, np.ndarray],
    config: BuildConfig,
    on_progress: Callable[[int, int | None], None],
    *,
    staying: Collection[str] = (),
    on_left: Callable[[str, Latency], None] = lambda name, latency: None,
) -> dict[str, Latency]:
    """Milliseconds per run of the finalists.

    For throughput, as many simultaneous runs as the library takes are timed together, and divided by their
    number; a GPU has no more to do than one run after the other.

    Args:
        staying: candidates that are finalists however slow they are; so are those in 4 bits, which are asked
            for by their size.
        on_left: called with others that were timed, and the first rounds, which they share with finalists.
    """
    halves = {name for name, candidate in candidates.items() if candidate.spec.precision in HALVES}
    floats = {name for name, candidate in candidates.items() if candidate.spec.precision == "fp32"} or halves
    small = {name for name, candidate in candidates.items() if candidate.spec.precision == "int4"}
    timed = partial(race, halves=halves, staying=small.union(staying))
    runs: dict[str, Callable[[], object]] = {
        name: _prepared(candidate.executor, inputs) for name, candidate in candidates.items()
    }
    if all(isinstance(run, TimesItself) for run in runs.values()):
        return race(runs, floats, _shorter(config.bench, OWN_CLOCK_RATIO, OWN_CLOCK_RATIO), on_progress)
    bench = _shorter(config.bench, SEARCH_RATIO, SEARCH_MAX_RATIO)
    if config.device.hint != "throughput":
        return timed(runs, floats, bench, on_progress, on_left=on_left)
    lanes = {name: candidate.executor.parallel_runs for name, candidate in candidates.items()}

    def per_run(name: str, latency: Latency) -> Latency:
        return latency.divided_by(lanes[name] * RUNS_PER_LANE)

    with ExitStack() as stack:
        together = {name: stack.enter_context(parallel_runs(run, lanes[name])) for name, run in runs.items()}
        latencies = timed(
            together, floats, bench, on_progress, on_left=lambda name, one: on_left(name, per_run(name, one))
        )
    return {name: per_run(name, latency) for name, latency in latencies.items()}


def _prepared(executor: Executor, inputs: Mapping[str, np.ndarray]) -> Callable[[], object]:
    return executor.prepare_timed(inputs) if isinstance(executor, HasClock) else executor.prepare(inputs)


def _shorter(bench: BenchConfig, ratio: float, most_ratio: float) -> BenchConfig:
    duration_s = bench.duration_s * ratio
    return replace(
        bench,
        warmup_s=bench.warmup_s * ratio,
        duration_s=duration_s,
        max_duration_s=max(bench.max_duration_s * most_ratio, duration_s),
    )
