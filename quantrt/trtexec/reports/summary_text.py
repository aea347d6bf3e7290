# SPDX-License-Identifier: Apache-2.0
"""The trace and the performance summary, line by line as trtexec prints them and other tools read them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from quantrt.runtime.query import Query
from quantrt.trtexec.reports.log import Log
from quantrt.trtexec.reports.trace import Stats, Trace, stats_of

__all__ = ["PARTS", "number", "show_summary", "show_trace", "stats_line"]

PARTS = (
    ("Latency", "latency_ms"),
    ("Enqueue Time", "enqueue_ms"),
    ("H2D Latency", "h2d_ms"),
    ("GPU Compute Time", "compute_ms"),
    ("D2H Latency", "d2h_ms"),
)
"""Lines of the summary in their order, with the property of a Query that each is of."""

SHOWN_LINES = 200
"""Of the trace at each end; those in between are counted, not printed."""

ENQUEUE_RATIO = 0.8
UNSTABLE_CV_PERCENT = 2.5

_EXPLANATIONS = """
=== Explanations of the performance metrics ===
Total Host Walltime: from the first counted query's inputs to the last one's outputs.
GPU Compute Time: what the device takes to compute a query; on a CPU, what the CPU takes.
Total GPU Compute Time: the sum of that over all counted queries.
Enqueue Time: how long the host's call took that enqueues a query; on a CPU that call computes as well.
H2D Latency: copying a query's inputs to the device. D2H Latency: copying its outputs back.
Latency: the sum of H2D Latency, GPU Compute Time and D2H Latency of a query."""


def number(value: float) -> str:
    """Six significant digits, as C++ streams print them."""
    return f"{value:.6g}"


def stats_line(stats: Stats, percents: Sequence[float]) -> str:
    """`min = 1 ms, max = 2 ms, mean = ..., median = ..., percentile(90%) = ...`."""
    named = [
        ("min", stats.min_ms),
        ("max", stats.max_ms),
        ("mean", stats.mean_ms),
        ("median", stats.median_ms),
        *(
            (f"percentile({percent:g}%)", value)
            for percent, value in zip(percents, stats.percentiles_ms, strict=True)
        ),
    ]
    return ", ".join(f"{name} = {number(value)} ms" for name, value in named)


def show_trace(out: Log, trace: Trace, *, avg_runs: int, warm_up_ms: float) -> None:
    """How many queries there are, and their averages in windows of `avg_runs`."""
    out.info(f"Warmup completed {trace.warm_up} queries over {number(warm_up_ms)} ms")
    out.info(f"Timing trace has {len(trace.timed)} queries over {number(trace.wall_ms / 1e3)} s")
    out.info("")
    out.info("=== Trace details ===")
    out.info(f"Trace averages of {avg_runs} runs:")
    lines = list(_windows(trace.timed, avg_runs))
    hidden = len(lines) - 2 * SHOWN_LINES
    if hidden > 0:
        lines[SHOWN_LINES:-SHOWN_LINES] = [f"... Omitting {hidden} lines"]
    for line in lines:
        out.info(line)


def show_summary(out: Log, trace: Trace, percents: Sequence[float], *, is_gpu: bool, streams: int) -> None:
    """Throughput, a line of statistics per part, totals, and what to be wary of."""
    stats = {name: stats_of([getattr(q, part) for q in trace.timed], percents) for name, part in PARTS}
    out.info("")
    out.info("=== Performance summary ===")
    out.info(f"Throughput: {number(trace.throughput_qps)} qps")
    for name, found in stats.items():
        out.info(f"{name}: {stats_line(found, percents)}")
    out.info(f"Total Host Walltime: {number(trace.wall_ms / 1e3)} s")
    total_s = sum(query.compute_ms for query in trace.timed) / 1e3
    out.info(f"Total GPU Compute Time: {number(total_s)} s")
    for line in _warnings(stats, is_gpu=is_gpu, streams=streams):
        out.warn(line)
    out.info("Explanations of the performance metrics are printed in the verbose logs.")
    out.verbose(_EXPLANATIONS)
    out.info("")


def _windows(queries: Sequence[Query], size: int) -> Iterator[str]:
    """A line per full window."""
    for first in range(0, len(queries) - size + 1, size):
        window = queries[first : first + size]
        compute, latency, enqueue = (
            number(sum(getattr(query, part) for query in window) / size)
            for part in ("compute_ms", "latency_ms", "enqueue_ms")
        )
        yield (
            f"Average on {size} runs - GPU latency: {compute} ms - Host latency: {latency} ms "
            f"(enqueue {enqueue} ms)"
        )


def _warnings(stats: dict[str, Stats], *, is_gpu: bool, streams: int) -> Iterator[str]:
    compute = stats["GPU Compute Time"]
    if is_gpu and stats["Enqueue Time"].median_ms > ENQUEUE_RATIO * compute.median_ms:
        yield _bound_by("Enqueue Time")
        yield "  Without --noCudaGraph a run is one CUDA graph, unless one of its steps reads values."
    for name in ("H2D Latency", "D2H Latency"):
        if is_gpu and stats[name].median_ms >= compute.median_ms:
            yield _bound_by(name)
            yield "  Add --noDataTransfers flag to disable data transfers."
    if compute.cv_percent > UNSTABLE_CV_PERCENT:
        yield f"* GPU compute time is unstable, with coefficient of variance = {number(compute.cv_percent)}%."
        hint = "Locking the GPU's clocks or --useSpinWait may help." if is_gpu else "Is the machine busy?"
        yield f"  {hint}"
    if streams > 1:
        yield "* Multiple inference streams are used: latencies include waiting for one another."


def _bound_by(name: str) -> str:
    return f"* Throughput may be bound by {name} rather than GPU Compute and the GPU may be under-utilized."
