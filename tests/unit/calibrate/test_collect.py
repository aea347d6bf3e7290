# SPDX-License-Identifier: Apache-2.0
import logging

import numpy as np
import onnxruntime
import pytest

from quantrt.calibrate import collect as collect_module
from quantrt.calibrate.collect import collect
from quantrt.calibrate.dataset import open_dataset, random_dataset
from quantrt.calibrate.stats import TensorStats, load_stats, save_stats
from quantrt.calibrate.taps import Taps
from quantrt.config import CalibrationConfig
from quantrt.errors import DataError, UsageError
from tests.nets import net, samples, weights

NAMES = ("image", "c", "r", "m", "g", "scores")
CONFIG = CalibrationConfig()


def images(rng, count: int, size: int = 8) -> np.ndarray:
    return rng.standard_normal((count, 3, size, size), np.float32)


def test_statistics_are_those_of_the_activations(conv_model, rng):
    x = images(rng, 5)
    stats = collect(conv_model, NAMES, open_dataset({"image": x}, conv_model.inputs), CONFIG)
    assert stats.samples == 5
    assert stats.fingerprint == conv_model.fingerprint
    assert set(stats.tensors) == set(NAMES)
    assert stats.tensors["image"] == TensorStats.from_values(x)
    session = onnxruntime.InferenceSession(conv_model.path)
    scores = np.concatenate([session.run(["scores"], {"image": x[i : i + 1]})[0] for i in range(5)])
    got = stats.tensors["scores"]
    assert (got.count, got.lo) == (scores.size, pytest.approx(scores.min(), rel=1e-5))
    assert stats.tensors["r"].lo == 0.0
    assert stats.tensors["c"].count == 5 * 4 * 8 * 8


def test_unknown_tensor_suggests_the_nearest(conv_model, rng):
    with pytest.raises(UsageError, match="no tensor 'score'") as error:
        collect(conv_model, ["score"], open_dataset({"image": images(rng, 1)}, conv_model.inputs), CONFIG)
    assert "'scores'" in error.value.hint


def test_data_hash_is_that_of_the_dataset(conv_model, rng):
    data = open_dataset({"image": images(rng, 3)}, conv_model.inputs)
    assert collect(conv_model, ["r"], data, CONFIG).data_hash == data.data_hash


def test_at_most_max_samples_are_used(conv_model, rng):
    x = images(rng, 6)
    data = open_dataset({"image": x}, conv_model.inputs)
    some = collect(conv_model, ["image"], data, CalibrationConfig(max_samples=4))
    assert some.samples == 4
    assert some.tensors["image"] == TensorStats.from_values(x[:4])


def test_ragged_samples_run_at_their_own_shapes(conv_model, rng):
    items = [{"image": images(rng, 1, size)} for size in (8, 8, 5, 11, 8)]
    stats = collect(conv_model, ["image", "r"], open_dataset(items, conv_model.inputs), CONFIG)
    assert stats.tensors["image"].count == sum(item["image"].size for item in items)


@pytest.mark.parametrize("memory_bytes", [1, 3000, 1 << 20])
def test_a_memory_bound_groups_the_taps_and_returns_all(conv_model, rng, memory_bytes):
    taps = Taps(conv_model, NAMES, memory_bytes)
    feed = {"image": images(rng, 1)}
    groups = list(taps.run(feed, "a test"))
    assert sorted(name for group in groups for name in group) == sorted(NAMES)
    for group in groups:
        if len(group) > 1:
            assert sum(array.nbytes for array in group.values()) <= memory_bytes
    assert (len(groups) > 2) == (memory_bytes < 1 << 20)


@pytest.mark.parametrize("memory_bytes", [1, 3000])
def test_parts_compute_what_the_whole_model_does(conv_model, rng, memory_bytes):
    feed = {"image": images(rng, 1)}
    (whole,) = (group for group in Taps(conv_model, NAMES, 1 << 20).run(feed, "a test") if "c" in group)
    parts = list(Taps(conv_model, NAMES, memory_bytes).run(feed, "a test"))
    assert len(parts) > 2
    for name, array in ((name, array) for part in parts for name, array in part.items()):
        np.testing.assert_allclose(array, whole.get(name, feed["image"]), rtol=1e-5, atol=1e-6)


def test_no_part_has_the_weights_of_another():
    text = """net (float[N,64] x) => (float[N,64] y) {
      a = MatMul (x, w)  b = Relu (a)  c = MatMul (b, v)  y = Add (b, c)
    }"""
    taps = Taps(net(text, weights({"w": (64, 64), "v": (64, 64)})), ("a", "b", "c", "y"), 1)
    assert [list(group) for group in taps.run({"x": samples(4, 64)}, "a test")] == [
        ["a"],
        ["b"],
        ["c"],
        ["y"],
    ]
    (parts,) = taps._parts_of.values()
    assert [list(part.session.quantrt_weights[0]) for part in parts if part.session.quantrt_weights] == [
        ["w"],
        ["v"],
    ]


def test_sessions_are_made_once(conv_model, rng):
    taps = Taps(conv_model, NAMES, 3000)
    for _ in range(3):
        list(taps.run({"image": images(rng, 1)}, "a test"))
    (made,) = taps._parts_of.values()
    for _ in range(2):
        list(taps.run({"image": images(rng, 1)}, "a test"))
    assert list(taps._parts_of.values()) == [made]


@pytest.mark.parametrize("count", [4, 6, 8, 1])
def test_padding_of_a_fixed_batch_is_not_counted(conv_batch4, rng, count):
    x = images(rng, count)
    stats = collect(conv_batch4, NAMES, open_dataset({"image": x}, conv_batch4.inputs), CONFIG)
    assert stats.samples == count
    assert stats.tensors["image"] == TensorStats.from_values(x)
    assert stats.tensors["scores"].count == 5 * count


def test_integer_tensors_are_left_out(make_model, rng):
    model = make_model("""<ir_version: 8, opset_import: ["" : 17]>
        net (int64[N] ids) => (float[N] y) { t = Add (ids, ids)  y = Cast <to = 1> (t) }""")
    data = open_dataset({"ids": np.arange(4)}, model.inputs)
    assert list(collect(model, ["ids", "t", "y"], data, CONFIG).tensors) == ["y"]


def test_float16_activations_are_counted(make_model, rng):
    model = make_model("""<ir_version: 8, opset_import: ["" : 17]>
        net (float16[N,4] x) => (float16[N,4] y) { y = Relu (x) }""")
    x = rng.standard_normal((3, 4)).astype(np.float16)
    stats = collect(model, ["x", "y"], open_dataset({"x": x}, model.inputs), CONFIG)
    assert stats.tensors["y"] == TensorStats.from_values(np.maximum(x, 0))


def test_only_values_of_the_main_graph_can_be_tapped(make_model):
    model = make_model("""<ir_version: 8, opset_import: ["" : 17]>
        net (float[N] x, bool c) => (float[N] y) {
          y = If (c) <then_branch = t () => (float[N] a) { a = Relu (x) },
                      else_branch = e () => (float[N] b) { b = Neg (x) }>
        }""")
    inputs = [{"x": np.float32([-1, 2]), "c": np.array(flag)} for flag in (True, False)]
    stats = collect(model, ["x", "y"], open_dataset(inputs, model.inputs), CONFIG)
    assert (stats.tensors["y"].lo, stats.tensors["y"].hi) == (-2.0, 2.0)
    with pytest.raises(UsageError, match="no tensor 'a'"):
        collect(model, ["a"], open_dataset(inputs, model.inputs), CONFIG)


def test_nan_in_the_data_names_input_sample_and_fraction(conv_model, rng):
    x = images(rng, 4)
    x[2, 0, 0, :6] = np.nan
    with pytest.raises(DataError, match=r"'image' has NaN .* sample 2 of") as error:
        collect(conv_model, ["r"], open_dataset({"image": x}, conv_model.inputs), CONFIG)
    assert error.value.got == "6 of 192 values (3.12%)"


def test_infinite_activations_name_tensor_sample_and_fraction(make_model):
    model = make_model("""<ir_version: 8, opset_import: ["" : 17]>
        net (float[N,2] x) => (float[N,2] y) { e = Exp (x)  y = Relu (e) }""")
    x = np.float32([[1, 2], [3, 200]])
    with pytest.raises(DataError, match=r"tensor 'e' .* sample 1 of") as error:
        collect(model, ["e"], open_dataset({"x": x}, model.inputs), CONFIG)
    assert error.value.got == "1 of 2 values (50.00%)"


def test_infinite_activations_in_a_fixed_batch_name_their_own_sample(make_model):
    model = make_model("""<ir_version: 8, opset_import: ["" : 17]>
        net (float[2,2] x) => (float[2,2] y) { e = Exp (x)  y = Relu (e) }""")
    x = np.float32([[1, 2], [3, 4], [5, 6], [7, 200]])
    with pytest.raises(DataError, match=r"tensor 'e' .* sample 3 of"):
        collect(model, ["e"], open_dataset({"x": x}, model.inputs), CONFIG)


def test_casts_of_the_data_are_noted_and_kept(conv_model, rng, tmp_path):
    x = images(rng, 2).astype(np.float64)
    stats = collect(conv_model, ["r"], open_dataset({"image": x}, conv_model.inputs), CONFIG)
    save_stats(stats, tmp_path / "x.ranges")
    for kept in (stats, load_stats(tmp_path / "x.ranges"), stats.merge(stats)):
        assert kept.notes == ("input 'image': float64 data were cast to float32",)


def test_no_samples_are_an_error(conv_model, rng):
    for source in ({"image": images(rng, 0)}, []):
        with pytest.raises(DataError, match="no samples"):
            collect(conv_model, ["r"], open_dataset(source, conv_model.inputs), CONFIG)


def test_random_samples_that_the_model_fails_on_are_told_as_made_up(make_model):
    model = make_model("""<ir_version: 8, opset_import: ["" : 17]>
        net (float[N,A] x, float[N,3] z) => (float[N,A] y) { y = Add (x, z) }""")
    with pytest.raises(
        DataError, match=r"fails on sample 0 of 'random data, seed 0': x 1x\d+, z 1x3"
    ) as caught:
        collect(model, ["y"], random_dataset(model.inputs, 1, 0), CONFIG)
    assert caught.value.hint.startswith("--calib-data with real samples")


def test_a_sample_the_model_fails_on_is_named(make_model, rng):
    model = make_model("""<ir_version: 8, opset_import: ["" : 17]>
        net (float[N,A] x, float[N,B] z) => (float[N,A] y) { y = Add (x, z) }""")
    data = open_dataset({"x": np.ones((2, 3), np.float32), "z": np.ones((2, 4), np.float32)}, model.inputs)
    with pytest.raises(DataError, match="fails on sample 0"):
        collect(model, ["y"], data, CONFIG)


def test_dead_tensors_are_noted_and_random_data_is_branded(make_model):
    model = make_model("""<ir_version: 8, opset_import: ["" : 17]>
        net (float[N,2] x) => (float[N,2] y) { d = Sub (x, x)  y = Add (d, x) }""")
    stats = collect(model, ["d", "y"], random_dataset(model.inputs, 3, 0), CONFIG)
    assert stats.is_random
    assert "'d'" in stats.notes[0]


def test_progress_is_told_after_each_sample(conv_model, rng):
    calls = []
    data = open_dataset({"image": images(rng, 3)}, conv_model.inputs)
    collect(conv_model, ["r"], data, CONFIG, on_progress=lambda *call: calls.append(call))
    assert calls == [(1, 3), (2, 3), (3, 3)]


class Interrupted:
    """Samples that break off once, as Ctrl-C does."""

    def __init__(self, x: np.ndarray, stop_at: int) -> None:
        self.x, self.stop_at, self.has_stopped = x, stop_at, False

    def __iter__(self):
        for index, row in enumerate(self.x):
            if index == self.stop_at and not self.has_stopped:
                self.has_stopped = True
                raise KeyboardInterrupt
            yield {"image": row}


@pytest.fixture
def interrupted(conv_model, rng, tmp_path, monkeypatch):
    """A run that stopped after 5 of 8 samples, with progress saved after each."""
    monkeypatch.setattr(collect_module, "SAVE_EVERY_S", 0.0)
    x = images(rng, 8)
    data = open_dataset(Interrupted(x, 5), conv_model.inputs)
    with pytest.raises(KeyboardInterrupt):
        collect(conv_model, NAMES, data, CONFIG, resume=tmp_path / "part.ranges")
    return x, data, tmp_path / "part.ranges"


def count_runs(model, names, data, path) -> tuple[int, object]:
    done = []
    stats = collect(model, names, data, CONFIG, resume=path, on_progress=lambda d, _: done.append(d))
    return len(done), stats


def test_an_interrupted_run_goes_on_where_it_stopped(conv_model, interrupted):
    x, data, path = interrupted
    assert load_stats(path).samples == 5
    runs, stats = count_runs(conv_model, NAMES, data, path)
    assert runs == 3
    assert stats == collect(conv_model, NAMES, open_dataset({"image": x}, conv_model.inputs), CONFIG)
    assert not path.exists()


def test_other_data_start_anew(conv_model, interrupted, caplog):
    x, _, path = interrupted
    caplog.set_level(logging.WARNING, "quantrt")
    x[0] += 1
    runs, _ = count_runs(conv_model, NAMES, open_dataset({"image": x}, conv_model.inputs), path)
    assert runs == 8
    assert "other data" in caplog.text


def test_other_tensors_start_anew(conv_model, interrupted):
    _, data, path = interrupted
    assert count_runs(conv_model, (*NAMES, "s"), data, path)[0] == 8


def test_another_model_starts_anew(conv_model, interrupted, tmp_path, make_model):
    _, data, path = interrupted
    import dataclasses

    from quantrt.model.model import Fingerprint

    other = dataclasses.replace(conv_model, fingerprint=Fingerprint("0" * 64, "0" * 64))
    assert count_runs(other, NAMES, data, path)[0] == 8


def test_a_damaged_progress_file_starts_anew(conv_model, interrupted, caplog):
    _, data, path = interrupted
    path.write_bytes(path.read_bytes()[:-5])
    assert count_runs(conv_model, NAMES, data, path)[0] == 8
    assert "starting anew" in caplog.text


def test_sizes_that_inference_cannot_tell_are_measured(make_model, rng):
    model = make_model("""<ir_version: 8, opset_import: ["" : 17]>
        net (float[N,S] x) => (float[K] y) {
          zero = Constant <value = float {0.0}> ()
          all = Constant <value = int64[1] {-1}> ()
          more = Greater (x, zero)
          flat = Reshape (x, all)
          mask = Reshape (more, all)
          k = Compress (flat, mask)
          y = Relu (k)
        }""")
    x = rng.standard_normal((1, 4000), np.float32)
    taps = Taps(model, ["flat", "k", "y"], 12_000)
    sizes = taps._sizes.of({"x": x})
    positive = int((x > 0).sum())
    assert sizes == {"flat": 16_000, "k": 4 * positive, "y": 4 * positive}
    assert len(list(taps.run({"x": x}, "a test"))) > 1
