# SPDX-License-Identifier: Apache-2.0
"""Time many candidates briefly, then the finalists together for long enough to tell them apart."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from quantrt.config import BenchConfig
from quantrt.tactics.timing import Latency, time_interleaved

__all__ = ["race"]

FINALISTS = 3
"""Besides the fastest FP32 candidate; one more than can win, for when the first is outside the budget."""

FAR_RATIO = 4.0
"""An FP32 candidate that is slower than the fastest by more is far behind: turns among the finalists would
tell nothing new of it, and take most of their time."""

HEAT_RATIO = 0.15
"""Part of the timed seconds that each candidate gets in the first heat."""


def race(
    runs: Mapping[str, Callable[[], object]],
    floats: set[str],
    config: BenchConfig,
    on_progress: Callable[[int, int | None], None] | None = None,
) -> dict[str, Latency]:
    """Latencies of the finalists, all from the same rounds but those of an FP32 candidate that is far behind.

    Args:
        runs: one run of each candidate, by name.
        floats: names of the FP32 candidates; the fastest of them always has a latency.
    """
    if len(runs) == 1:
        return time_interleaved(runs, config, on_progress)
    brief = config.duration_s * HEAT_RATIO
    heat_config = replace(
        config, duration_s=brief, max_duration_s=brief, min_runs=5, warmup_s=min(config.warmup_s, 0.2)
    )
    heat = time_interleaved(runs, heat_config, None, min_rounds=1)
    order = sorted(heat, key=lambda name: heat[name].median_ms)
    if len(runs) <= FINALISTS:
        finalists = order
    else:
        baseline = next(name for name in order if name in floats)
        finalists = [baseline, *[name for name in order if name not in floats][:FINALISTS]]
    limit_ms = FAR_RATIO * heat[order[0]].median_ms
    far = [name for name in finalists if name in floats and heat[name].median_ms > limit_ms]
    final = {name: runs[name] for name in finalists if name not in far}
    return {name: heat[name] for name in far} | time_interleaved(final, config, on_progress)
