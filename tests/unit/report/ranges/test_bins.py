# SPDX-License-Identifier: Apache-2.0
"""A tensor's histogram in a few dozen characters still says where the values are, and what is clipped."""

import json

import numpy as np
import pytest

from quantrt.calibrate.stats import TensorStats
from quantrt.dtypes import INT8, UINT8
from quantrt.quantize.scales.qparams import QParams
from quantrt.report.ranges.bins import ALPHABET, BINS, read_tensors, tensor_table, without_bins


def grid(scale: float, zero_point: int = 0, *, qmin: int = -128, qmax: int = 127) -> QParams:
    dtype = INT8 if qmin < 0 else UINT8
    return QParams(np.float32(scale), np.int32(zero_point), dtype, None, qmin, qmax)


def row_of(values: np.ndarray, codes: QParams) -> dict:
    (row,) = read_tensors(tensor_table({"t": codes}, {"t": TensorStats.from_values(values)}))
    return row


def shares_of(bins: str) -> np.ndarray:
    """Bin shares as a reader of the format computes them."""
    codes = np.array([ALPHABET.index(sign) for sign in bins])
    return np.where(codes > 0, 2.0 ** ((codes - len(ALPHABET) + 1) / 2), 0.0)


def test_shares_follow_the_values(rng: np.random.Generator):
    values = rng.standard_normal(100_000).astype(np.float32)
    row = row_of(values, grid(0.05))
    counts, _ = np.histogram(values, BINS)
    shares, want = shares_of(row["bins"]), counts / counts.sum()
    many = counts > 200
    # Codes are half octaves: at most a quarter of one off; a source bin is 1/128 of its value wide.
    assert np.all(np.abs(np.log2(shares[many] / want[many])) <= 0.25 + 0.1)
    assert many.sum() > 20


def test_empty_bins_are_told_from_rare_ones():
    values = np.concatenate([np.zeros(1_000_000), [1.0]]).astype(np.float32)
    bins = row_of(values, grid(0.01))["bins"]
    assert bins[0] == ALPHABET[-1] and set(bins[1:-1]) == {ALPHABET[0]}
    assert shares_of(bins)[-1] == pytest.approx(1e-6, rel=0.42)


def test_range_and_clipped_share(rng: np.random.Generator):
    values = rng.uniform(-2.0, 2.0, 200_000).astype(np.float32)
    row = row_of(values, grid(1 / 128))
    assert (row["lo"], row["hi"]) == (-1.0, 127 / 128)
    assert row["clipped_ratio"] == pytest.approx(np.mean((values < -1.0039) | (values > 0.9961)), abs=2e-3)
    assert row["noise_ratio"] > 0.1
    wide = row_of(values, grid(2 / 127))
    assert wide["clipped_ratio"] == 0.0 and wide["noise_ratio"] < 1e-4


def test_an_unsigned_grid_with_a_zero_point(rng: np.random.Generator):
    values = rng.uniform(-1.0, 3.0, 50_000).astype(np.float32)
    row = row_of(values, grid(4 / 255, 64, qmin=0, qmax=255))
    assert row["lo"] == pytest.approx(-64 * 4 / 255) and row["hi"] == pytest.approx(191 * 4 / 255)
    step_power = (4 / 255) ** 2 / 12
    assert row["noise_ratio"] == pytest.approx(step_power / np.mean(values**2), rel=0.05)


def test_a_tensor_of_one_value_has_no_bins():
    row = row_of(np.full(10, 0.5, np.float32), grid(0.5))
    assert row["bins"] == "" and (row["min"], row["max"]) == (0.5, 0.5)


def test_a_tensor_that_was_not_observed_has_its_grid():
    (row,) = read_tensors(tensor_table({"t": grid(0.5)}, {}))
    assert row["min"] is None and row["bins"] == "" and row["hi"] == 63.5


def test_grids_per_channel_are_left_out():
    codes = QParams(np.ones(3, np.float32), np.zeros(3, np.int32), INT8, 0, -128, 127)
    assert tensor_table({"t": codes}, {})["rows"] == []


def test_a_row_is_small(rng: np.random.Generator):
    values = np.concatenate([rng.standard_normal(10_000), [-4321.9876, 1234.5678]]).astype(np.float32)
    name = "/layers.11/attention/self/query/MatMul_output_0"
    table = tensor_table({name: grid(1.2345678e-5, -3)}, {name: TensorStats.from_values(values)})
    assert len(json.dumps(json.dumps(table["rows"], separators=(",", ":")))) < 200


def test_without_bins(rng: np.random.Generator):
    table = tensor_table({"t": grid(0.1)}, {"t": TensorStats.from_values(rng.standard_normal(100))})
    (row,) = read_tensors(without_bins(table))
    assert row == {**read_tensors(table)[0], "bins": ""} and len(read_tensors(table)[0]["bins"]) == BINS


def test_a_float_engine_has_no_tensors():
    assert read_tensors(None) == []
