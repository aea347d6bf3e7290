# SPDX-License-Identifier: Apache-2.0
"""Who is timed to the end where runs time themselves: a brief heat of all, and a final of the best."""

from dataclasses import dataclass, field

import pytest

from quantrt.config import BenchConfig
from quantrt.tactics.race import FINALISTS, HEAT_RATIO, HOPELESS_RATIO, race

CONFIG = BenchConfig(duration_s=1.0, max_duration_s=1.0, warmup_s=0.0, min_runs=3)


@dataclass
class Run:
    """A run on a device whose clock says that it takes `ms`."""

    ms: float
    spent_ms: float = field(default=0.0)

    def __call__(self) -> None:
        pass

    def times_ms(self, count: int) -> list[float]:
        self.spent_ms += count * self.ms
        return [self.ms] * count


def raced(times_ms: dict[str, float]) -> tuple[dict[str, Run], set[str]]:
    """The runs, and the names of those with a latency."""
    runs = {name: Run(ms) for name, ms in times_ms.items()}
    latencies = race(runs, {name for name in runs if "fp32" in name}, CONFIG)
    assert {name: row.median_ms for name, row in latencies.items()} == {n: times_ms[n] for n in latencies}
    return runs, set(latencies)


@pytest.mark.parametrize("count", [1, 2, FINALISTS])
def test_few_are_all_timed_to_the_end_however_slow(count: int):
    times_ms = {"fp32": 1.0, "int8": 0.5, "fp16": 4.0}
    few = dict(list(times_ms.items())[:count])
    assert raced(few)[1] == set(few)


def test_the_best_of_many_and_the_fastest_fp32_are_finalists():
    slow_first = {"a fp32": 3.0, "int4": 0.9, "fp16": 0.8, "b fp32": 2.0, "fp8": 0.6, "int8": 0.5}
    runs, finalists = raced(slow_first)
    assert finalists == {"b fp32", "int8", "fp8", "fp16"}
    heat_ms = HEAT_RATIO * CONFIG.duration_s * 1e3
    assert all(heat_ms / 5 < runs[name].spent_ms < 2 * heat_ms for name in ("a fp32", "int4"))
    assert runs["b fp32"].spent_ms >= CONFIG.max_duration_s * 1e3
    counts = {name: run.spent_ms / run.ms for name, run in runs.items()}
    assert min(counts[name] for name in finalists) > 5 * max(counts["a fp32"], counts["int4"])


def test_what_is_hopeless_beside_fp32_is_no_finalist():
    at_limit, over = HOPELESS_RATIO, 1.01 * HOPELESS_RATIO
    _, finalists = raced({"fp32": 1.0, "int8": 0.5, "fp16": at_limit, "fp8": over})
    assert finalists == {"fp32", "int8", "fp16"}


def test_the_fastest_beside_fp32_is_a_finalist_however_slow():
    _, finalists = raced({"fp32": 1.0, "other fp32": 1.2, "int8": 9.0, "fp16": 10.0})
    assert finalists == {"fp32", "int8"}


def test_beside_a_run_without_a_clock_all_are_timed_by_the_host():
    """There is no heat then: FP32 candidates that are surely slower leave on the way."""
    hosts: list[int] = []

    class Clock:
        """A nanosecond clock that runs only while somebody runs."""

        now_ns = 0

        def __call__(self) -> int:
            return self.now_ns

    clock = Clock()

    def by_host() -> None:
        hosts.append(1)
        clock.now_ns += 2_000_000

    runs = {"fp32": by_host, "int8": Run(1.0), "fp16": Run(1.5), "fp8": Run(9.0)}
    latencies = race(runs, {"fp32"}, CONFIG, staying={"fp8"}, clock=clock)
    assert set(latencies) == set(runs) and len(hosts) > 1
