# SPDX-License-Identifier: Apache-2.0
"""Every run is in a bin or counted as above them."""

import numpy as np

from quantrt.report.built.latency_bins import LATENCY_BINS, latency_bins
from quantrt.tactics.timing import Latency


def test_every_run_is_counted_and_one_outlier_does_not_stretch_the_bins(rng: np.random.Generator):
    times = [*rng.uniform(1.0, 2.0, 500).tolist(), 900.0]
    found = latency_bins(Latency(tuple(times)))
    assert len(found["counts"]) == LATENCY_BINS
    assert sum(found["counts"]) + found["above"] == 501
    assert 1 <= found["above"] <= 6 and found["hi_ms"] <= 2.0
    assert found["lo_ms"] == float(f"{min(times):.5g}")


def test_equal_runs_are_in_one_bin():
    found = latency_bins(Latency((3.0, 3.0, 3.0)))
    assert found["counts"][0] == 3 and found["above"] == 0 and found["hi_ms"] >= found["lo_ms"]
