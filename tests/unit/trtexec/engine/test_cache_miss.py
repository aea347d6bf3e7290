# SPDX-License-Identifier: Apache-2.0
"""Timings that a timing cache did not have."""

import json
from pathlib import Path

import pytest

from quantrt.errors import DataError, DeviceError, UsageError
from quantrt.trtexec.engine.cache_miss import check_no_miss, known_timings


def write(path: Path, **workloads: list[str]) -> Path:
    rows = {key: {"tactics": {tactic: {} for tactic in tactics}} for key, tactics in workloads.items()}
    path.write_text(json.dumps({"format": "quantrt timing cache", "workloads": rows}))
    return path


def test_a_build_that_found_everything(tmp_path: Path):
    path = write(tmp_path / "t.json", gemm=["a", "b"])
    known = known_timings(path)
    assert known == {("gemm", "a"), ("gemm", "b")}
    check_no_miss(write(path, gemm=["b", "a"]), known)


def test_a_build_that_had_to_time(tmp_path: Path):
    path = write(tmp_path / "t.json", gemm=["a"])
    known = known_timings(path)
    write(path, gemm=["a", "c"], conv1=["x"], conv2=["x"], conv3=["x"])
    with pytest.raises(DeviceError, match="4 timings of 4 workloads were not in") as caught:
        check_no_miss(path, known)
    assert caught.value.got == "conv1, conv2, conv3 and 1 more"


def test_no_cache_to_look_into(tmp_path: Path):
    for path in (None, tmp_path / "none.json"):
        with pytest.raises(UsageError, match="needs a timing cache") as caught:
            known_timings(path)
        assert "--timingCacheFile" in str(caught.value.hint)


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"workloads": {"gemm": 1}}', "\x00\x01TRT", "[" * 100_000])
def test_a_file_that_is_none(tmp_path: Path, text: str):
    (tmp_path / "t.cache").write_text(text)
    with pytest.raises(DataError, match="it is no timing cache of QuantRT's"):
        known_timings(tmp_path / "t.cache")
