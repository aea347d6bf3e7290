# SPDX-License-Identifier: Apache-2.0
"""What `inspect` says of a ranges file."""

import json
from pathlib import Path

import numpy as np
import pytest

from quantrt.calibrate.stats import Stats, TensorStats, save_stats
from quantrt.cli.json_text import json_text
from quantrt.config import CalibrationConfig
from quantrt.model.model import Fingerprint
from quantrt.report.ranges.file import describe_ranges, show_ranges


@pytest.fixture
def stats(rng: np.random.Generator) -> Stats:
    tensors = {
        "a": TensorStats.from_values(np.append(rng.normal(size=1000), 50.0)),
        "zero": TensorStats.from_values(np.zeros(10)),
    }
    return Stats(tensors, 10, "00", Fingerprint("g" * 64, "w" * 64), is_random=True, notes=("a note",))


def described(stats: Stats, folder: Path, method: str) -> dict[str, object]:
    save_stats(stats, folder / "x.ranges")
    return describe_ranges(stats, folder / "x.ranges", CalibrationConfig(method=method, percentile=99.0))


def test_the_range_follows_the_method(stats: Stats, tmp_path: Path):
    minmax = described(stats, tmp_path, "minmax")["tensors"][0]
    percentile = described(stats, tmp_path, "percentile")["tensors"][0]
    assert minmax["hi"] == minmax["max"] == 50.0
    assert percentile["hi"] < 50.0
    assert minmax["count"] == 1001


def test_the_document_is_json(stats: Stats, tmp_path: Path):
    data = described(stats, tmp_path, "auto")
    assert json.loads(json_text(data))["is_random"] is True


def test_random_ranges_are_branded_and_tables_fit(
    stats: Stats, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    show_ranges(described(stats, tmp_path, "auto"), layers=True)
    out = capsys.readouterr().out
    assert "random: the ranges mean nothing" in out
    assert "a note" in out
    assert max(map(len, out.splitlines()[1:])) <= 100
