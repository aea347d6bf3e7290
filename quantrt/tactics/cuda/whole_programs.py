# SPDX-License-Identifier: Apache-2.0
"""Two programs of one model held against each other as wholes: replayed in turns on the device.

A region that is timed alone has the launch of its graph in its time, some microseconds, and the whole device
to itself. Where kernels become fewer, the sum of such times gains what no engine gains: there launches
overlap, and programs of several kernels lie beside each other.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from contextlib import ExitStack, closing

import numpy as np
import torch

from quantrt.errors import DeviceError
from quantrt.plan.program import Program
from quantrt.runtime.cuda.executor import CudaExecutor, specs_of
from quantrt.tactics.cuda.assemble import assemble
from quantrt.tactics.cuda.choices import Choices
from quantrt.tactics.cuda.frame import Frame
from quantrt.tactics.cuda.timing import Timing, timing_of
from quantrt.tactics.cuda.timing_cache import Entry, TimingCache, merge

__all__ = ["Tuned", "hold_against"]

Tuned = tuple[Frame, Choices]
"""A program before it is put together."""

ROUNDS = 40
WARM_ROUNDS = 5
GAIN_RATIO = 0.005
"""Of the time, that has to be gained: what medians of so many rounds in turns tell apart."""

BEFORE, AFTER = "before", "after"


def hold_against(
    before: Tuned, after: Tuned, inputs: Mapping[str, np.ndarray], device: torch.device | None
) -> tuple[str, TimingCache]:
    """Why a program is not faster than the one before it, empty where it is; and all timings.

    Args:
        inputs: one batch of samples.
        device: None for a GPU that is not here: what the timing cache does not know is no gain.
    """
    cache, key = before[1].cache, _key(before, after)
    known = cache.entries[key].tactics if key in cache.entries else {}
    times = {name: found for name, found in known.items() if isinstance(found, Timing)}
    if len(times) < len((BEFORE, AFTER)):
        if device is None:
            return "not timed", cache
        try:
            times = _time({BEFORE: _program(before), AFTER: _program(after)}, inputs, device)
        except (DeviceError, torch.OutOfMemoryError) as error:  # memory is short for both at once
            return f"not timed as a whole: {str(error).splitlines()[0]}", cache
    entry = Entry("Program", "", (), (), times)
    cache = merge(cache, TimingCache(cache.environment, {key: entry}))
    before_us, after_us = times[BEFORE].median_us, times[AFTER].median_us
    if after_us < before_us * (1 - GAIN_RATIO):
        return "", cache
    return (
        f"no gain on this GPU: the whole program takes {after_us:.1f} us, {before_us:.1f} us without",
        cache,
    )


def _time(
    programs: Mapping[str, Program], inputs: Mapping[str, np.ndarray], device: torch.device
) -> dict[str, Timing]:
    """Of runs in turns, from inputs that are on the device, by its own clock."""
    samples_us: dict[str, list[float]] = {name: [] for name in programs}
    with ExitStack() as stack:
        runs = {}
        for name, program in programs.items():
            executor = stack.enter_context(
                closing(CudaExecutor(program, *specs_of(program), device=str(device)))
            )
            context = stack.enter_context(closing(executor.create_context()))
            runs[name] = context.time_runs(inputs, copies=False, spins=True)
        for number in range(WARM_ROUNDS + ROUNDS):
            for name, run in runs.items():
                time_us = 1e3 * run.enqueue().wait().compute_ms
                samples_us[name] += [time_us] if number >= WARM_ROUNDS else []
    return {name: timing_of(found) for name, found in samples_us.items()}


def _program(tuned: Tuned) -> Program:
    frame, choices = tuned
    return assemble(
        frame.program, frame.items, choices.tactics, choices.kernels, choices.plans, places=frame.places
    )


def _key(before: Tuned, after: Tuned) -> str:
    """Of both programs' work and tactics."""
    rows = [
        [(item.region, *_told(choices, item.region)) for item in frame.items]
        for frame, choices in (before, after)
    ]
    return hashlib.sha256(json.dumps(rows).encode()).hexdigest()[:24]


def _told(choices: Choices, region: str) -> tuple[str, ...]:
    choice = choices.by_region.get(region)
    return () if choice is None else (choice.key, choice.tactic.name)
