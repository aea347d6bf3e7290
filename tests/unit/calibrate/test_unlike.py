# SPDX-License-Identifier: Apache-2.0
"""Samples far beyond all others are found, told and left out; nothing else is."""

from pathlib import Path

import numpy as np
import pytest

from quantrt.calibrate.collect import collect
from quantrt.calibrate.dataset import Dataset, open_dataset, random_dataset
from quantrt.calibrate.unlike import Unlike, find_unlike, without_unlike
from quantrt.config import CalibrationConfig, QuantizeConfig
from quantrt.errors import DataError
from quantrt.ir.tensor_spec import TensorSpec
from quantrt.quantize.fit.fit import fit
from quantrt.quantize.fit.observe import observe
from quantrt.quantize.targets import ORT
from tests.nets import net, weights

SPECS = (TensorSpec("x", "float32", ("N", 3, 8)), TensorSpec("ids", "int64", ("N", 2)))
COUNT = 512


@pytest.fixture
def x(rng: np.random.Generator) -> np.ndarray:
    return rng.standard_normal((COUNT, 3, 8), np.float32)


def dataset(x: np.ndarray) -> Dataset:
    return open_dataset({"x": x, "ids": np.full((len(x), 2), 10**6)}, SPECS)


def test_one_damaged_value_is_found_and_told(x: np.ndarray):
    usual = float(np.quantile(np.abs(x).max((1, 2)), 0.98, method="lower"))
    x[17, 1, 4] = 1e4
    found = find_unlike(dataset(x))
    assert found == (Unlike(17, "x", 1e4, pytest.approx(usual, rel=0.02)),)
    kept = without_unlike(dataset(x))
    (told,) = kept.remarks
    assert told.startswith("unlike all others: sample 17 ('x' reaches 1e+04, others 3.")
    assert kept.notes == kept.remarks
    assert len(kept) == COUNT - 1


@pytest.mark.parametrize("size", [1, 8, 100])
def test_what_is_left_is_all_else_in_order(x: np.ndarray, size: int):
    x[0] = x[17] = x[COUNT - 1] = -200
    kept = without_unlike(dataset(x))
    assert kept.left_out == {0, 17, COUNT - 1}
    rows = np.concatenate([batch.inputs["x"] for batch in kept.batches(size)])
    np.testing.assert_array_equal(rows, np.delete(x, [0, 17, COUNT - 1], axis=0))
    assert [batch.first_sample for batch in kept.batches(size)] == list(range(0, COUNT - 3, size))
    assert [kept.index_of(position) for position in (0, 15, 16, COUNT - 4)] == [1, 16, 18, COUNT - 2]


def test_statistics_are_those_of_the_others(x: np.ndarray):
    model = net("net (float[N,3,8] x) => (float[N,3,8] y) { y = Relu(x) }", {})
    x[17] *= 100
    damaged, others = (
        collect(model, ["y"], without_unlike(open_dataset({"x": data}, model.inputs)), CalibrationConfig())
        for data in (x, np.delete(x, 17, axis=0))
    )
    assert damaged == others
    assert "sample 17 ('x'" in damaged.data_notes[0] and others.data_notes == ()


@pytest.mark.parametrize(
    ("samples", "factor"), [([17], 2.0), (range(0, COUNT, 20), 100.0), (range(COUNT), 100.0)],
    ids=["twice as large", "one of twenty", "all"],
)  # fmt: skip
def test_what_is_no_accident_is_kept(x: np.ndarray, samples, factor: float):
    x[samples] *= factor
    kept = without_unlike(dataset(x))
    assert (kept.left_out, kept.remarks) == (frozenset(), ())


def test_fewer_samples_than_tell_what_is_usual_are_kept(x: np.ndarray):
    x[0] = 1e6
    assert find_unlike(dataset(x[:15])) == ()
    assert len(find_unlike(dataset(x[:16]))) == 1


def test_only_the_samples_that_are_used_are_looked_at(x: np.ndarray):
    x[200] = 1e6
    assert find_unlike(dataset(x), max_samples=200) == ()


def test_random_values_and_what_is_read_once_are_taken_as_they_are(x: np.ndarray):
    x[17] = 1e6
    once = open_dataset(({"x": row[None], "ids": np.zeros((1, 2), np.int64)} for row in x), SPECS)
    assert without_unlike(once) is once
    made_up = random_dataset(SPECS, 32, 0)
    assert without_unlike(made_up) is made_up


def test_many_are_counted(x: np.ndarray):
    x[:8] = 1e6
    (told,) = without_unlike(dataset(x)).remarks
    assert told.count("sample ") == 5 and "and 3 more; they are left out" in told


def test_a_value_that_is_no_number_behind_a_sample_left_out_is_named_by_its_own_index(x: np.ndarray):
    model = net("net (float[N,3,8] x) => (float[N,3,8] y) { y = Sqrt(x) }", {})
    x = np.abs(x)
    x[3], x[20, 0, 0] = 500, -1
    data = without_unlike(open_dataset({"x": x}, model.inputs))
    with pytest.raises(DataError, match="sample 20 of"):
        collect(model, ["y"], data, CalibrationConfig())


def test_ranges_of_a_network_do_not_see_one_damaged_sample(x: np.ndarray, tmp_path: Path):
    """Whole ranges of the damaged data have 5 bits for all others."""
    model = net(
        "net (float[N,3,8] x) => (float[N,3,4] y) { h = Relu(x) y = MatMul(h, w) }", weights({"w": (8, 4)})
    )
    clean = x.copy()
    x[17, 1, 4] = 1e4
    scales = []
    for data in (x, np.delete(clean, 17, axis=0)):
        kept = without_unlike(open_dataset({"x": data}, model.inputs))
        stats, reference = observe(model, ["h"], kept, QuantizeConfig(), CalibrationConfig())
        made = fit(model, stats, ORT, reference, config=QuantizeConfig(), calibration=CalibrationConfig())
        scales.append(made.model.activations["h"].scale)
    assert scales[0] == scales[1] < 0.02
