"""The timing cache: what is kept, merged, ignored and refused."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from quantrt.errors import DataError, InternalError
from quantrt.tactics.cuda.timing.timing import Timing, timing_of
from quantrt.tactics.cuda.timing.timing_cache import (
    Entry,
    TimingCache,
    add_timings,
    load_timing_cache,
    merge,
)

HERE = {"gpu": "NVIDIA H200", "driver": "570.1"}
A100 = {"gpu": "NVIDIA A100", "driver": "570.1"}
L4 = {"gpu": "NVIDIA L4", "driver": "550.9"}
FAST = Timing(9.5, 9.4, 9.7, 30)
SLOW = Timing(12.125, 12.0, 12.5, 5)


def cache(key: str, **tactics: Timing | str) -> TimingCache:
    return TimingCache(HERE, {key: Entry("Gemm", "int8[3, 4]", ("int8[2, 3]",), ("int8",), tactics)})


def test_what_is_saved_is_loaded(tmp_path: Path):
    path = tmp_path / "timing.json"
    kept = cache("a", one=FAST, two="output 0 differs")
    add_timings(kept, path)
    assert load_timing_cache(path, HERE) == kept


def test_the_same_timings_give_the_same_bytes(tmp_path: Path):
    entry = Entry("Rows", "", (), (), {"one": FAST, "two": SLOW})
    turned = Entry("Rows", "", (), (), {"two": SLOW, "one": FAST})
    first = TimingCache(HERE, {"a": entry, "b": entry})
    second = TimingCache(dict(reversed(HERE.items())), {"b": turned, "a": turned})
    for name, kept in (("first", first), ("second", second)):
        add_timings(kept, tmp_path / name)
    assert (tmp_path / "first").read_bytes() == (tmp_path / "second").read_bytes()


def test_no_file_is_an_empty_cache(tmp_path: Path):
    assert load_timing_cache(tmp_path / "none.json", HERE) == TimingCache(HERE)


@pytest.mark.parametrize("other", [{**HERE, "driver": "580.2"}, {"gpu": "NVIDIA H200"}], ids=["else", "less"])
def test_another_environment_is_ignored_and_named(tmp_path: Path, other: dict[str, str]):
    path = tmp_path / "timing.json"
    add_timings(cache("a", one=FAST), path)
    found = load_timing_cache(path, other)
    assert not found.entries
    (note,) = found.notes
    assert "driver 570.1, not" in note
    assert str(path) in note


def of(environment: dict[str, str], key: str) -> TimingCache:
    return replace(cache(key, one=FAST), environment=environment)


def test_gpus_that_share_a_file_keep_each_others_timings(tmp_path: Path):
    path = tmp_path / "timing.json"
    for one in (of(HERE, "a"), of(A100, "a"), of(L4, "c"), of(A100, "b"), of(HERE, "d")):
        add_timings(one, path)
    entries = {name["gpu"]: load_timing_cache(path, name).entries for name in (HERE, A100, L4)}
    assert {gpu: set(found) for gpu, found in entries.items()} == {
        "NVIDIA H200": {"a", "d"},
        "NVIDIA A100": {"a", "b"},
        "NVIDIA L4": {"c"},
    }
    turned = tmp_path / "turned.json"
    for one in (of(A100, "b"), of(L4, "c"), of(HERE, "d"), of(HERE, "a"), of(A100, "a")):
        add_timings(one, turned)
    assert turned.read_bytes() == path.read_bytes()


@pytest.mark.parametrize("field", ["driver", "cuda", "torch", "cudnn", "triton"])
def test_machines_with_one_kind_of_gpu_keep_each_others_timings(tmp_path: Path, field: str):
    path, here, other = tmp_path / "timing.json", {**HERE, field: "1"}, {**HERE, field: "2"}
    add_timings(of(here, "a"), path)
    add_timings(of(A100, "b"), path)
    (note,) = load_timing_cache(path, other).notes
    assert note.endswith(f"they were taken with {field} 1, not 2"), "and nothing of the other GPU"
    for key in ("c", "d"):
        add_timings(of(other, key), path)
        add_timings(of(here, key), path)
    assert set(load_timing_cache(path, here).entries) == {"a", "c", "d"}
    assert set(load_timing_cache(path, other).entries) == {"c", "d"}
    assert set(load_timing_cache(path, A100).entries) == {"b"}


@pytest.mark.parametrize("field", ["sources", "quantrt"])
def test_what_other_sources_timed_on_the_gpu_is_replaced_and_other_gpus_stay(tmp_path: Path, field: str):
    path, newer = tmp_path / "timing.json", {**HERE, field: "2"}
    for before in ({**HERE, field: "1"}, {**HERE, field: "1", "driver": "560.3"}, {**A100, field: "1"}):
        add_timings(of(before, "a"), path)
    add_timings(of(newer, "c"), path)
    assert set(load_timing_cache(path, newer).entries) == {"c"}
    assert not load_timing_cache(path, {**HERE, field: "1"}).entries
    assert set(load_timing_cache(path, {**A100, field: "1"}).entries) == {"a"}
    assert len(json.loads(path.read_text())["devices"]) == 2


def test_a_gpu_that_a_file_does_not_know_is_told_those_that_it_does(tmp_path: Path):
    path = tmp_path / "timing.json"
    for one in (of(HERE, "a"), of(A100, "b")):
        add_timings(one, path)
    (note,) = load_timing_cache(path, L4).notes
    gpus = "NVIDIA A100 and NVIDIA H200"
    assert note == f"'{path}' has no timings of NVIDIA L4 yet: those in it are of {gpus}"


def test_a_gpu_that_is_elsewhere_is_found_among_others(tmp_path: Path):
    path = tmp_path / "timing.json"
    for one in (of(HERE, "a"), of(A100, "b")):
        add_timings(one, path)
    found = load_timing_cache(path, {"gpu": "H200"}, is_elsewhere=True)
    assert set(found.entries) == {"a"} and found.notes == ()


@pytest.mark.parametrize(
    ("one", "other", "kept"),
    [
        (FAST, SLOW, FAST),
        (SLOW, Timing(12.0, 11.0, 13.0, 5), Timing(12.0, 11.0, 13.0, 5)),
        (FAST, "bad", "bad"),
    ],
    ids=["more samples", "faster", "rejected"],
)
def test_merging_keeps_the_better_in_any_order(one: Timing, other: Timing | str, kept: Timing | str):
    left, right = cache("a", x=one, y=FAST), cache("a", x=other)
    assert merge(left, right).entries["a"].tactics == {"x": kept, "y": FAST}
    assert merge(left, right).entries == merge(right, left).entries


def test_merging_joins_workloads():
    assert set(merge(cache("a", x=FAST), cache("b", x=SLOW)).entries) == {"a", "b"}


def test_merging_two_environments_is_refused():
    with pytest.raises(DataError, match="two environments") as failure:
        merge(cache("a", x=FAST), TimingCache({**HERE, "driver": "1"}))
    assert "driver 570.1, not 1" in str(failure.value)


def _changed(change: str) -> bytes:
    tactic = {"median_us": 1.0, "p20_us": 1.0, "p80_us": 1.0, "samples": 3}
    entry = {"formula": "Gemm", "weight": "", "inputs": [], "outputs": [], "tactics": {"x": tactic}}
    data = {"format": "quantrt timing cache", "version": 1, "environment": HERE, "workloads": {"a": entry}}
    match change:
        case "negative":
            tactic["median_us"] = -1.0
        case "not a number":
            tactic["median_us"] = float("nan")
        case "half a sample":
            tactic["samples"] = 0.5
        case "no tactics":
            del entry["tactics"]
        case "version":
            data["version"] = 3
        case "list":
            return b"[1, 2]"
        case "workloads":
            data["workloads"] = [1]
        case "cut":
            return json.dumps(data).encode()[:-5]
        case "bytes":
            return b"\xff\xfe\x00garbage"
        case "deep":
            return b"[" * 100_000
        case "no devices":
            data["version"] = 2
        case "one device":
            data |= {"version": 2, "devices": {"environment": HERE, "workloads": {}}}
        case "nothing of a device":
            data |= {"version": 2, "devices": [{"environment": HERE}]}
    return json.dumps(data).encode()


CHANGES = (
    "negative",
    "not a number",
    "half a sample",
    "no tactics",
    "version",
    "list",
    "workloads",
    "cut",
    "bytes",
    "deep",
    "no devices",
    "one device",
    "nothing of a device",
)


@pytest.mark.parametrize("change", CHANGES)
def test_a_damaged_file_is_an_error_that_names_it(tmp_path: Path, change: str):
    path = tmp_path / "damaged.json"
    path.write_bytes(_changed(change))
    with pytest.raises(DataError, match=r"damaged\.json"):
        load_timing_cache(path, HERE)


def test_a_file_of_version_1_is_of_one_device(tmp_path: Path):
    path = tmp_path / "whole.json"
    path.write_bytes(_changed("nothing"))
    assert load_timing_cache(path, HERE).entries["a"].tactics == {"x": Timing(1.0, 1.0, 1.0, 3)}
    add_timings(of(A100, "b"), path)
    assert json.loads(path.read_text())["version"] == 2
    assert set(load_timing_cache(path, HERE).entries) == {"a"}
    assert set(load_timing_cache(path, A100).entries) == {"b"}


def test_quantiles():
    assert timing_of([5.0, 1.0, 2.0, 3.0, 4.0]) == Timing(3.0, 1.8, 4.2, 5)
    assert timing_of([1.00049]) == Timing(1.0, 1.0, 1.0, 1)


@pytest.mark.parametrize("samples", [[], [1.0, 0.0], [float("nan")]], ids=["none", "zero", "nan"])
def test_no_timing_of_nothing(samples: list[float]):
    with pytest.raises(InternalError):
        timing_of(samples)
