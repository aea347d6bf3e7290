# SPDX-License-Identifier: Apache-2.0
"""Laws of calibration: what may not change a statistic or a range, and what quantization may lose."""

import hypothesis.extra.numpy as arrays
import hypothesis.strategies as st
import numpy as np
import onnx
import pytest
from hypothesis import given, settings

from quantrt.calibrate.collect import collect
from quantrt.calibrate.dataset import open_dataset
from quantrt.calibrate.histogram import Histogram
from quantrt.calibrate.ranges.ranges import Grid, choose_range
from quantrt.calibrate.stats import Stats, TensorStats
from quantrt.config import RANGE_METHODS, CalibrationConfig
from quantrt.model.load import load_model
from quantrt.model.model import Fingerprint, Model

SIZES = st.integers(1, 300)
FLOATS = st.floats(width=32, allow_nan=False, allow_infinity=False)
MODERATE = st.floats(-1e6, 1e6, width=32).map(lambda x: 0.0 if abs(x) < 1e-6 else x)
ANY_VALUES = arrays.arrays(np.float32, SIZES, elements=FLOATS)
VALUES = arrays.arrays(np.float32, SIZES, elements=MODERATE)
GRIDS = st.builds(Grid, st.sampled_from([256, 255, 128, 16]), st.booleans(), st.booleans())
METHODS = st.sampled_from(RANGE_METHODS)
FINGERPRINT = Fingerprint("a" * 64, "b" * 64)


def stats_of(x: np.ndarray, samples: int) -> Stats:
    return Stats({"x": TensorStats.from_values(x)}, samples, f"{samples:064x}", FINGERPRINT)


@given(ANY_VALUES, ANY_VALUES, ANY_VALUES)
def test_merging_is_associative_and_commutative(a, b, c):
    x, y, z = (stats_of(values, index) for index, values in enumerate((a, b, c)))
    assert x.merge(y) == y.merge(x)
    assert x.merge(y).merge(z) == x.merge(y.merge(z))


@given(ANY_VALUES, st.data())
def test_parts_merge_to_the_whole_wherever_it_is_cut(x, data):
    cut = data.draw(st.integers(0, x.size))
    histogram = Histogram()
    histogram.add(x[cut:])
    histogram.add(x[:cut])
    assert TensorStats.from_histogram(histogram) == TensorStats.from_values(x)


@given(VALUES, GRIDS)
@settings(max_examples=50)
def test_mse_and_auto_are_never_worse_than_minmax(x, grid):
    stats = TensorStats.from_values(x)
    minmax, mse, auto = (
        choose_range(stats, grid, CalibrationConfig(method=method)).error_ratio
        for method in ("minmax", "mse", "auto")
    )
    assert mse <= minmax * (1 + 1e-9)
    assert auto <= mse * (1 + 1e-9)


@given(VALUES, GRIDS, METHODS, st.integers(-20, 20))
@settings(max_examples=100)
def test_scaling_by_a_power_of_two_scales_the_range_by_it(x, grid, method, exponent):
    config = CalibrationConfig(method=method)
    plain = choose_range(TensorStats.from_values(x), grid, config)
    scaled = choose_range(TensorStats.from_values(np.ldexp(x, exponent)), grid, config)
    factor = 2.0**exponent
    assert (scaled.lo, scaled.hi) == (plain.lo * factor, plain.hi * factor)
    assert scaled.method == plain.method


@given(VALUES, GRIDS, METHODS)
@settings(max_examples=100)
def test_inside_the_range_quantization_loses_at_most_half_a_step(x, grid, method):
    chosen = choose_range(TensorStats.from_values(x), grid, CalibrationConfig(method=method))
    scale, zero = (a[0] for a in grid.scale_and_zero(np.array([chosen.lo]), np.array([chosen.hi])))
    lo = 0.0 if grid.symmetric and not grid.signed else chosen.lo
    inside = x[(x >= lo) & (x <= chosen.hi)].astype(np.float64)
    codes = np.clip(np.rint(inside / scale + zero), grid.qmin, grid.qmax)
    assert np.all(np.abs((codes - zero) * scale - inside) <= scale / 2 * (1 + 1e-9))


@given(VALUES, GRIDS, METHODS)
def test_zero_is_exact_and_inside_every_range(x, grid, method):
    chosen = choose_range(TensorStats.from_values(x), grid, CalibrationConfig(method=method))
    assert chosen.lo <= 0.0 <= chosen.hi
    _, zero = grid.scale_and_zero(np.array([chosen.lo]), np.array([chosen.hi]))
    assert zero[0] == np.rint(zero[0])
    assert grid.qmin <= zero[0] <= grid.qmax


POOLED_TEXT = """<ir_version: 8, opset_import: ["" : 17]>
net (float[N,40,24] x) => (float[N,7] y)
{ h = MatMul (x, a)  r = Relu (h)  p = ReduceMean <axes = [1], keepdims = 0> (r)  y = MatMul (p, b) }"""


@pytest.fixture(scope="module")
def pooled(tmp_path_factory) -> Model:
    """A mean over tokens: ONNX Runtime sums in another order when the batch is 1, which changes last bits."""
    model = onnx.parser.parse_model(POOLED_TEXT)
    rng = np.random.default_rng(5)
    for name, shape in (("a", (24, 32)), ("b", (32, 7))):
        model.graph.initializer.append(
            onnx.numpy_helper.from_array(rng.standard_normal(shape, np.float32), name)
        )
    path = tmp_path_factory.mktemp("pooled") / "pooled.onnx"
    onnx.save_model(model, path)
    return load_model(path)


DATA = np.random.default_rng(6).standard_normal((20, 40, 24), np.float32)
NAMES = ("x", "h", "r", "p", "y")


@given(order=st.permutations(range(20)), batch_size=st.sampled_from([1, 3, 8]))
@settings(max_examples=15)
def test_order_and_batch_size_change_no_statistic(pooled, order, batch_size):
    plain = collect(pooled, NAMES, open_dataset({"x": DATA}, pooled.inputs), CalibrationConfig(batch_size=1))
    config = CalibrationConfig(batch_size=batch_size)
    assert collect(pooled, NAMES, open_dataset({"x": DATA[order]}, pooled.inputs), config) == plain


@given(order=st.permutations(range(12)), cut=st.integers(1, 11))
@settings(max_examples=10)
def test_statistics_of_two_parts_merge_to_those_of_all(pooled, order, cut):
    config = CalibrationConfig()
    rows = [{"x": DATA[index]} for index in order]
    first, second, whole = (
        collect(pooled, NAMES, open_dataset(part, pooled.inputs), config)
        for part in (rows[:cut], rows[cut:], rows)
    )
    assert first.merge(second) == whole


@given(order=st.permutations(range(10)))
@settings(max_examples=10)
def test_the_order_of_batches_given_as_one_changes_nothing(pooled, order):
    """The caller's own batches are taken apart."""
    config = CalibrationConfig()
    batches = [{"x": DATA[order[:4]]}, {"x": DATA[order[4:]]}]
    single = [{"x": DATA[index]} for index in range(10)]
    assert collect(pooled, NAMES, open_dataset(batches, pooled.inputs), config) == collect(
        pooled, NAMES, open_dataset(single, pooled.inputs), config
    )
