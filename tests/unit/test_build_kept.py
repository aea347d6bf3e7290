# SPDX-License-Identifier: Apache-2.0
"""Builds with a timing cache calibrate once for the same model, data and options."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch", reason="programs run in torch")

from quantrt.build import build
from quantrt.config import AssignConfig, BuildConfig, CalibrationConfig, DeviceConfig
from tests.gpu_stand_in import BRIEF, REFERENCE_ALONE, stand_in_for_gpu
from tests.nets import net, samples, weights

TEXT = "net (float[N,64] x) => (float[N,64] y) { h = MatMul(x, v) r = Relu(h) y = MatMul(r, w) }"
ROWS = {"x": samples(8, 64)}
CONFIG = BuildConfig(
    assign=AssignConfig(mixed=False),
    precisions=frozenset({"fp32", "int8"}),
    bench=BRIEF,
    calibration=CalibrationConfig(method="minmax"),
    device=DeviceConfig(device="cuda"),
    cuda=REFERENCE_ALONE,
)


def built(config: BuildConfig, data: Mapping[str, np.ndarray]) -> tuple[bool, list[str], Mapping, np.ndarray]:
    """Whether the model was calibrated, notes of ranges, the calibration's facts and int8's accuracy."""
    stages: list[str] = []
    with (
        stand_in_for_gpu(),
        build(
            net(TEXT, weights({"v": (64, 64), "w": (64, 64)})),
            config=config,
            calibration=data,
            on_event=lambda event: stages.append(event.stage),
        ) as engine,
    ):
        report = engine.report
    (codes,) = (row for row in report["candidates"] if row["precision"] == "int8")
    notes = [note for note in report["notes"] if note.startswith("ranges are those of an earlier build")]
    return "calibrating" in stages, notes, report["calibration"], codes["output_noise_ratios"]


def test_a_second_build_with_a_timing_cache_does_not_calibrate(tmp_path: Path):
    config = replace(CONFIG, cuda=replace(REFERENCE_ALONE, timing_cache=str(tmp_path / "t.json")))
    was_run, notes, facts, noise = built(config, ROWS)
    assert (was_run, notes) == (True, [])
    again, told, same_facts, same_noise = built(config, ROWS)
    assert not again
    (name,) = (path.stem for path in tmp_path.glob("t.json.*.ranges"))
    assert told == [
        "ranges are those of an earlier build with the same model, data and options: "
        f"'{name}.ranges', '{name}.fits'"
    ]
    assert (same_facts, same_noise) == (facts, noise)
    other = {"x": samples(8, 64, seed=5)}
    was_run, notes, other_facts, _ = built(config, other)
    assert (was_run, notes) == (True, [])
    assert other_facts["data_hash"] != facts["data_hash"]


def test_without_a_timing_cache_nothing_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    for _ in range(2):
        was_run, notes, *_ = built(CONFIG, ROWS)
        assert (was_run, notes) == (True, [])
    assert not list(tmp_path.iterdir())
