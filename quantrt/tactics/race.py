# SPDX-License-Identifier: Apache-2.0
"""Time many candidates briefly, then the finalists together for long enough to tell them apart."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from quantrt.config import BenchConfig
from quantrt.tactics.timing import Latency, TimesItself, time_interleaved

__all__ = ["race"]

FINALISTS = 3
"""Besides the fastest FP32 candidate; one more than can win, for when the first is outside the budget."""

HEAT_RATIO = 0.1
"""Part of the timed seconds that each candidate gets in the first heat."""

HOPELESS_RATIO = 1.5
"""Of the fastest FP32 candidate's time in the heat: what takes longer is not shipped however exact it is."""

WARM_S = 0.2
"""Of warming up in a heat, and again behind one."""


def race(
    runs: Mapping[str, Callable[[], object]],
    floats: set[str],
    config: BenchConfig,
    on_progress: Callable[[int, int | None], None] | None = None,
) -> dict[str, Latency]:
    """Latencies of the finalists, all from the same rounds.

    Args:
        runs: one run of each candidate, by name.
        floats: names of the FP32 candidates; the fastest of them is always a finalist.
    """
    # What times itself on a device is timed for a thirtieth of the seconds already.
    told = None if all(isinstance(run, TimesItself) for run in runs.values()) else floats
    if len(runs) <= FINALISTS:
        return time_interleaved(runs, config, on_progress, floats=told)
    warm = replace(config, warmup_s=min(config.warmup_s, WARM_S))
    brief = config.duration_s * HEAT_RATIO
    heat_config = replace(warm, duration_s=brief, max_duration_s=brief, min_runs=5)
    heat = time_interleaved(runs, heat_config, None, min_rounds=1)
    order = sorted(heat, key=lambda name: heat[name].median_ms)
    baseline = next(name for name in order if name in floats)
    limit_ms = HOPELESS_RATIO * heat[baseline].median_ms
    others = [name for name in order if name not in floats][:FINALISTS]
    hopeful = [name for name in others if name == others[0] or heat[name].median_ms <= limit_ms]
    finalists = {name: runs[name] for name in (baseline, *hopeful)}
    return time_interleaved(finalists, warm, on_progress, floats=told)
