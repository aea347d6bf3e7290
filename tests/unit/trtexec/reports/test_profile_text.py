# SPDX-License-Identifier: Apache-2.0
"""Times of layers: a table with trtexec's widths, and the rows of --exportProfile."""

import json
from pathlib import Path

from quantrt.runtime.layer_times import LayerTimes
from quantrt.trtexec.reports.profile_text import profile_json, profile_lines

TIMES = LayerTimes(
    names=("conv1 + relu1", "nothing", "fc"),
    times_ms=((1.0, 3.0, 2.0), (0.0, 0.0, 0.0), (0.5, 0.5, 1.0)),
    run_ms=(1.6, 3.6, 3.1),
    method="a clock",
)


def test_the_table_word_for_word():
    """Columns as wide as their headers; a layer that took no time is left out."""
    assert list(profile_lines(TIMES)) == [
        "=== Profile (3 iterations ) ===",
        "   Time(ms)     Avg.(ms)   Median(ms)   Time(%)   Layer",
        "       6.00       2.0000       2.0000      75.0   conv1 + relu1",
        "       2.00       0.6667       0.5000      25.0   fc",
        "       8.00       2.6667       2.5000     100.0   Total",
    ]


def test_the_rows_of_the_file():
    count, conv, nothing, fc = profile_json(TIMES)
    assert count == {"count": 3}
    assert conv == {
        "name": "conv1 + relu1",
        "timeMs": 6.0,
        "averageMs": 2.0,
        "medianMs": 2.0,
        "percentage": 75.0,
    }
    assert nothing["percentage"] == nothing["timeMs"] == 0.0
    assert fc["medianMs"] == 0.5


def test_an_engine_that_took_no_time():
    empty = LayerTimes(names=("a",), times_ms=((0.0,),), run_ms=(0.0,), method="a clock")
    assert profile_json(empty)[1]["percentage"] == 0.0


def test_rows_have_the_fields_and_types_of_real_ones(shared_data):
    names = ("pytorch/resnet/A100/fp16/resnet.onnx.engine.profile.json", "notebooks_8e44926/profile.json")
    for name in names:
        real: Path = shared_data(f"trtexec_json/{name}")
        first, *rows = json.loads(real.read_text())
        assert set(first) == set(profile_json(TIMES)[0])
        own = profile_json(TIMES)[1]
        for row in rows:
            assert list(row) == list(own)
            for key, value in row.items():
                assert isinstance(value, int | float) == isinstance(own[key], float)
