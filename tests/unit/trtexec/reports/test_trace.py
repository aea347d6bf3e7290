# SPDX-License-Identifier: Apache-2.0
"""Statistics by trtexec's definitions."""

import pytest

from quantrt.runtime.query import Query
from quantrt.trtexec.reports.trace import Trace, percentile, stats_of


def query(start_ms: float, *, h2d_ms: float = 1.0, compute_ms: float = 2.0, d2h_ms: float = 0.5) -> Query:
    ends = [start_ms + h2d_ms, start_ms + h2d_ms + compute_ms, start_ms + h2d_ms + compute_ms + d2h_ms]
    return Query(
        start_enqueue_ms=start_ms - 0.1,
        end_enqueue_ms=start_ms + 0.1,
        start_h2d_ms=start_ms,
        end_h2d_ms=ends[0],
        start_compute_ms=ends[0],
        end_compute_ms=ends[1],
        start_d2h_ms=ends[1],
        end_d2h_ms=ends[2],
    )


@pytest.mark.parametrize(
    ("count", "percent", "index"),
    [
        (10, 90, 8),
        (10, 99, 9),
        (10, 100, 9),
        (10, 0, 0),
        (1, 50, 0),
        (100, 99, 99),
        (1000, 90, 899),
        (7, 50, 3),
    ],
)
def test_the_index_of_a_percentile(count: int, percent: float, index: int):
    """max(n - 1 - int((1 - p / 100) n), 0) in single precision."""
    assert percentile([float(i) for i in range(count)], percent) == index


def test_the_median_of_an_even_number_is_between_two():
    found = stats_of([4.0, 1.0, 3.0, 2.0], (50,))
    assert (found.min_ms, found.max_ms, found.mean_ms, found.median_ms) == (1.0, 4.0, 2.5, 2.5)
    assert found.percentiles_ms == (2.0,)
    assert found.cv_percent == pytest.approx(1.25**0.5 / 2.5 * 100)


def test_nothing_but_zeros_does_not_vary():
    assert stats_of([0.0, 0.0], ()).cv_percent == 0.0


def test_latency_leaves_out_the_time_between_parts():
    found = query(5.0)
    assert (found.h2d_ms, found.compute_ms, found.d2h_ms, found.latency_ms) == (1.0, 2.0, 0.5, 3.5)
    assert found.enqueue_ms == pytest.approx(0.2)


def test_what_begins_to_compute_before_the_warm_up_is_over_is_not_counted():
    trace = Trace.of([query(start) for start in (12.0, 0.0, 8.5, 4.0, 9.5)], 9.5)
    assert [found.start_h2d_ms for found in trace.queries] == [0.0, 4.0, 8.5, 9.5, 12.0]
    assert trace.warm_up == 2
    assert len(trace.timed) == 3
    assert trace.wall_ms == pytest.approx(15.5 - 8.5)
    assert trace.throughput_qps == pytest.approx(3 / 7.0 * 1e3)


def test_the_wall_ends_with_the_last_outputs_whichever_query_they_are_of():
    trace = Trace.of([query(0.0, compute_ms=50.0), query(1.0)], 0.0)
    assert trace.wall_ms == pytest.approx(51.5)


def test_a_warm_up_that_never_ends():
    assert Trace.of([query(0.0)], 100.0).timed == ()
