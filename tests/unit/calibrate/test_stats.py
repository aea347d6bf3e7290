# SPDX-License-Identifier: Apache-2.0
import hashlib
import json
from dataclasses import replace

import numpy as np
import pytest
import safetensors.numpy

from quantrt.calibrate.stats import Stats, TensorStats, load_stats, save_stats
from quantrt.errors import DataError, DeviceError
from quantrt.model.model import Fingerprint

MODEL = Fingerprint("a" * 64, "b" * 64)


def make_stats(rng, *, names=("x", "y"), fingerprint=MODEL, samples=3) -> Stats:
    tensors = {name: TensorStats.from_values(rng.standard_normal(500)) for name in names}
    return Stats(tensors, samples, f"{samples:064x}", fingerprint)


@pytest.fixture
def stats(rng) -> Stats:
    return make_stats(rng)


def test_saved_statistics_come_back_bit_for_bit(stats, tmp_path):
    path = tmp_path / "x.ranges"
    save_stats(stats, path)
    assert load_stats(path) == stats
    assert [p.name for p in tmp_path.iterdir()] == ["x.ranges"]


def test_saving_over_an_older_file_replaces_it(stats, rng, tmp_path):
    path = tmp_path / "x.ranges"
    save_stats(make_stats(rng, samples=9), path)
    save_stats(stats, path)
    assert load_stats(path).samples == 3


def test_a_folder_that_is_not_there_is_named(stats, tmp_path):
    with pytest.raises(DeviceError, match=r"no/x\.ranges"):
        save_stats(stats, tmp_path / "no" / "x.ranges")


def test_merging_adds_counts_samples_and_hashes(rng):
    a, b = make_stats(rng, samples=3), make_stats(rng, samples=4)
    both = a.merge(b)
    assert both.samples == 7
    assert both.data_hash == f"{7:064x}"
    np.testing.assert_array_equal(both.tensors["x"].counts, a.tensors["x"].counts + b.tensors["x"].counts)
    assert both.tensors["x"].lo == min(a.tensors["x"].lo, b.tensors["x"].lo)


def test_merging_keeps_the_brand_of_random_data(stats):
    random = Stats(stats.tensors, 1, "0" * 64, MODEL, is_random=True)
    assert stats.merge(random).is_random
    assert random.merge(stats).is_random


def test_merging_two_models_names_both(stats, rng):
    other = make_stats(rng, fingerprint=Fingerprint("c" * 64, "d" * 64))
    with pytest.raises(DataError, match="two models") as error:
        stats.merge(other)
    assert "cccc" in error.value.got
    assert "aaaa" in error.value.expected


def test_merging_different_tensors_names_one(stats, rng):
    with pytest.raises(DataError, match="different tensors") as error:
        stats.merge(make_stats(rng, names=("x", "z")))
    assert "'y'" in error.value.got


def test_merging_with_a_tensor_that_was_always_empty_changes_nothing(rng):
    empty = TensorStats(np.zeros(65536, np.int64), 0.0, 0.0, 0)
    full = TensorStats.from_values(rng.standard_normal(9) + 10)
    assert empty.merge(full) == full
    assert full.merge(empty) == full


def test_a_tensor_that_is_always_zero_is_noted(stats):
    zero = Stats({"dead": TensorStats.from_values(np.zeros(5))}, 1, "0" * 64, MODEL)
    assert "'dead'" in zero.merge(zero).notes[0]
    assert stats.merge(stats).notes == ()


@pytest.mark.parametrize("size", [0, 4, 100, -1])
def test_a_truncated_file_is_an_error(stats, tmp_path, size):
    path = tmp_path / "x.ranges"
    save_stats(stats, path)
    path.write_bytes(path.read_bytes()[:size])
    with pytest.raises(DataError, match=r"x\.ranges"):
        load_stats(path)


def test_every_flipped_byte_of_the_arrays_is_an_error(stats, tmp_path):
    path = tmp_path / "x.ranges"
    save_stats(stats, path)
    data = path.read_bytes()
    (header_bytes,) = np.frombuffer(data[:8], np.uint64)
    for position in range(8 + int(header_bytes), len(data), 97):
        damaged = bytearray(data)
        damaged[position] ^= 0x10
        path.write_bytes(damaged)
        with pytest.raises(DataError, match="damaged"):
            load_stats(path)


@pytest.mark.parametrize("bit", [0x01, 0x04, 0x10, 0x20])
def test_every_flipped_byte_of_the_header_is_an_error_or_changes_nothing(rng, tmp_path, bit):
    stats = replace(make_stats(rng), notes=("12 samples were cast from float64",))
    path = tmp_path / "x.ranges"
    save_stats(stats, path)
    data = path.read_bytes()
    (header_bytes,) = np.frombuffer(data[:8], np.uint64)
    for position in range(8 + int(header_bytes)):
        damaged = bytearray(data)
        damaged[position] ^= bit
        path.write_bytes(damaged)
        try:
            loaded = load_stats(path)
        except DataError:
            continue
        assert (loaded, loaded.notes) == (stats, stats.notes), f"byte {position}"


def test_a_file_whose_checksum_is_of_the_arrays_alone_is_read(stats, tmp_path):
    path = tmp_path / "x.ranges"
    save_stats(stats, path)
    with safetensors.safe_open(path, framework="np") as file:
        arrays = b"".join(file.get_tensor(name).tobytes() for name in ("keys", "counts"))
    rewrite(path, lambda h: h.update(version=1, sha256=hashlib.sha256(arrays).hexdigest()))
    assert load_stats(path) == stats


def rewrite(path, change) -> None:
    """Save the file again with a changed header."""
    with safetensors.safe_open(path, framework="np") as file:
        header = json.loads(file.metadata()["quantrt"])
        arrays = {name: file.get_tensor(name) for name in file.keys()}
    change(header)
    path.write_bytes(safetensors.numpy.save(arrays, metadata={"quantrt": json.dumps(header)}))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda h: h.update(version=99), "another version"),
        (lambda h: h.update(format="other"), "not a ranges file"),
        (lambda h: h.pop("samples"), "damaged"),
        (lambda h: h["tensors"][0].update(count=1), "damaged"),
        (lambda h: h["tensors"][0].update(lo=9e9), "damaged"),
        (lambda h: h["tensors"][0].update(bins=10**9), "damaged"),
        (lambda h: h.update(tensors=3), "damaged"),
    ],
)
def test_a_header_that_does_not_hold_together_is_an_error(stats, tmp_path, change, message):
    path = tmp_path / "x.ranges"
    save_stats(stats, path)
    rewrite(path, change)
    with pytest.raises(DataError, match=message):
        load_stats(path)


def test_another_safetensors_file_is_no_ranges_file(tmp_path):
    path = tmp_path / "weights.ranges"
    path.write_bytes(safetensors.numpy.save({"w": np.zeros(3, np.float32)}))
    with pytest.raises(DataError, match="not a ranges file"):
        load_stats(path)


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(DataError, match="no such file"):
        load_stats(tmp_path / "none.ranges")
