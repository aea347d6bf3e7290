# SPDX-License-Identifier: Apache-2.0
"""An engine that was right at every batch size is not run again for that by a build of the very same."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from quantrt.assign.accuracy import kept_sizes as module
from quantrt.assign.accuracy.batch_sizes import Trial
from quantrt.assign.accuracy.kept_sizes import KeptSizes
from quantrt.plan.program_json import program_to_model
from tests.programs import KERNEL, pooled_program

ENVIRONMENT = {"gpu": "NVIDIA H200"}
TRIED = (Trial({"x": np.ones((2, 3), np.float32)}, (1, 2)),)


def model_of(weight: float = 1.0, notes: str = "", dtype: str = "float32", code: bytes = b"code"):
    """A program's model, with a weight and a kernel that nothing reads."""
    return program_to_model(
        pooled_program(
            dtype,
            weights={"w": np.full((2, 2), weight, np.float32)},
            kernels={"kernel": replace(KERNEL, cubins={90: code}, shared_bytes={90: 0})},
            notes={"tuning": notes},
        )
    )


def kept_by_default(path: Path) -> tuple[KeptSizes, str]:
    kept = KeptSizes(path, ENVIRONMENT)
    return kept, kept.key(model_of(notes="timed"), ["y"], TRIED)


def test_what_was_right_is_known_whatever_is_told_of_it(tmp_path: Path):
    kept, key = kept_by_default(tmp_path / "t.json")
    assert not kept.is_right(key)
    assert not (tmp_path / "t.json.sizes").exists()
    kept.keep(key, TRIED)
    other = KeptSizes(tmp_path / "t.json", ENVIRONMENT)
    assert other.is_right(other.key(model_of(notes="cached"), ["y"], TRIED))
    assert json.loads((tmp_path / "t.json.sizes").read_text())["right"] == {key: [[1, 2]]}


@pytest.mark.parametrize(
    "differs", ["weight", "step", "code", "told", "sizes", "samples", "environment", "sources"]
)
def test_what_it_follows_from_tells_it_apart(differs: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    kept, key = kept_by_default(tmp_path / "t.json")
    kept.keep(key, TRIED)
    if differs == "sources":
        monkeypatch.setattr(module, "source_digest", lambda folders: "0")
    environment = {"gpu": "another"} if differs == "environment" else ENVIRONMENT
    other = {"weight": {"weight": 2.0}, "step": {"dtype": "float16"}, "code": {"code": b"edoc"}}
    model = model_of(**other.get(differs, {}))
    (trial,) = TRIED
    trial = replace(trial, sizes=(1,)) if differs == "sizes" else trial
    trial = replace(trial, inputs={"x": np.zeros((2, 3), np.float32)}) if differs == "samples" else trial
    told = ["z"] if differs == "told" else ["y"]
    other_kept = KeptSizes(tmp_path / "t.json", environment)
    assert not other_kept.is_right(other_kept.key(model, told, [trial]))
    assert kept.is_right(key)


@pytest.mark.parametrize("text", ["", "{}", '{"format": "quantrt kept batch sizes", "right": 1}'])
def test_a_damaged_file_is_made_anew(text: str, tmp_path: Path):
    (tmp_path / "t.json.sizes").write_text(text)
    kept, key = kept_by_default(tmp_path / "t.json")
    assert not kept.is_right(key)
    kept.keep(key, TRIED)
    assert kept.is_right(key)
