# SPDX-License-Identifier: Apache-2.0
"""The lines that other tools look for."""

import re
from collections.abc import Iterator
from datetime import datetime

import pytest

from quantrt.trtexec.reports.log import Log
from quantrt.trtexec.reports.summary_text import number, show_summary, show_trace
from quantrt.trtexec.reports.trace import Trace
from tests.unit.trtexec.reports.test_trace import query

PREFIX = "[02/03/2026-04:05:06] [I] "


@pytest.fixture
def out() -> Log:
    return Log(is_verbose=True, now=lambda: datetime(2026, 2, 3, 4, 5, 6))


def lines(text: str) -> Iterator[str]:
    for line in text.splitlines():
        assert re.match(r"\[\d\d/\d\d/\d{4}-\d\d:\d\d:\d\d\] \[[IWEV]\] ", line)
        yield line[len(PREFIX) :]


def trace(count: int) -> Trace:
    return Trace.of([query(10.0 * i, compute_ms=2.0 + i % 2) for i in range(count)], 0.0)


def test_the_summary_word_for_word(out: Log, capsys: pytest.CaptureFixture[str]):
    show_summary(out, trace(4), (90.0, 99.5), is_gpu=False, streams=1)
    found = list(lines(capsys.readouterr().out))
    assert found[:11] == [
        "",
        "=== Performance summary ===",
        "Throughput: 115.942 qps",
        "Latency: min = 3.5 ms, max = 4.5 ms, mean = 4 ms, median = 4 ms, percentile(90%) = 4.5 ms, "
        "percentile(99.5%) = 4.5 ms",
        "Enqueue Time: min = 0.2 ms, max = 0.2 ms, mean = 0.2 ms, median = 0.2 ms, percentile(90%) = 0.2 ms, "
        "percentile(99.5%) = 0.2 ms",
        "H2D Latency: min = 1 ms, max = 1 ms, mean = 1 ms, median = 1 ms, percentile(90%) = 1 ms, "
        "percentile(99.5%) = 1 ms",
        "GPU Compute Time: min = 2 ms, max = 3 ms, mean = 2.5 ms, median = 2.5 ms, percentile(90%) = 3 ms, "
        "percentile(99.5%) = 3 ms",
        "D2H Latency: min = 0.5 ms, max = 0.5 ms, mean = 0.5 ms, median = 0.5 ms, percentile(90%) = 0.5 ms, "
        "percentile(99.5%) = 0.5 ms",
        "Total Host Walltime: 0.0345 s",
        "Total GPU Compute Time: 0.01 s",
        "Explanations of the performance metrics are printed in the verbose logs.",
    ]


def test_the_median_is_found_by_a_pattern_that_tuners_use(out: Log, capsys: pytest.CaptureFixture[str]):
    show_summary(out, trace(4), (90.0,), is_gpu=True, streams=1)
    found = re.search(r"\[I\]\s+Latency:.*?median\s*=\s*([\d.]+)\s*ms", capsys.readouterr().out)
    assert found is not None
    assert float(found[1]) == 4.0


def test_warnings_say_what_to_be_wary_of(out: Log, capsys: pytest.CaptureFixture[str]):
    show_summary(out, trace(4), (90.0,), is_gpu=False, streams=2)
    on_a_cpu = capsys.readouterr().err
    assert "[W] * GPU compute time is unstable, with coefficient of variance = 20%." in on_a_cpu
    assert "Multiple inference streams" in on_a_cpu
    slow_copies = Trace.of([query(100.0 * i, h2d_ms=5.0) for i in range(4)], 0.0)
    show_summary(out, slow_copies, (90.0,), is_gpu=True, streams=1)
    on_a_gpu = capsys.readouterr().err
    assert "bound by H2D Latency rather than GPU Compute" in on_a_gpu
    assert "bound by D2H" not in on_a_gpu
    assert "unstable" not in on_a_gpu


def test_a_call_that_computes_is_no_slow_enqueue(out: Log, capsys: pytest.CaptureFixture[str]):
    busy = Trace.of([query(10.0 * i, compute_ms=0.2) for i in range(4)], 0.0)
    show_summary(out, busy, (90.0,), is_gpu=False, streams=1)
    assert "Enqueue" not in capsys.readouterr().err
    show_summary(out, busy, (90.0,), is_gpu=True, streams=1)
    assert "bound by Enqueue Time" in capsys.readouterr().err


def test_windows_of_the_trace(out: Log, capsys: pytest.CaptureFixture[str]):
    show_trace(out, trace(5), avg_runs=2, warm_up_ms=200.0)
    assert list(lines(capsys.readouterr().out)) == [
        "Warmup completed 0 queries over 200 ms",
        "Timing trace has 5 queries over 0.0435 s",
        "",
        "=== Trace details ===",
        "Trace averages of 2 runs:",
        "Average on 2 runs - GPU latency: 2.5 ms - Host latency: 4 ms (enqueue 0.2 ms)",
        "Average on 2 runs - GPU latency: 2.5 ms - Host latency: 4 ms (enqueue 0.2 ms)",
    ]


def test_a_long_trace_is_cut_in_the_middle(out: Log, capsys: pytest.CaptureFixture[str]):
    show_trace(out, trace(450), avg_runs=1, warm_up_ms=0.0)
    found = list(lines(capsys.readouterr().out))[5:]
    assert len(found) == 401
    assert found[200] == "... Omitting 50 lines"


@pytest.mark.parametrize(
    ("value", "text"), [(1.52905123, "1.52905"), (3.0, "3"), (1e-7, "1e-07"), (123456.7, "123457")]
)
def test_numbers_as_streams_print_them(value: float, text: str):
    assert number(value) == text
