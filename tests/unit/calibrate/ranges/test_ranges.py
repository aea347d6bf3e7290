# SPDX-License-Identifier: Apache-2.0
import numpy as np
import pytest

from quantrt.calibrate.ranges.entropy import SMOOTHING, _divergences
from quantrt.calibrate.ranges.ranges import Grid, choose_range, range_noise_ratio
from quantrt.calibrate.stats import TensorStats
from quantrt.config import CalibrationConfig
from quantrt.dtypes import INT8, UINT8
from quantrt.errors import UsageError
from quantrt.quantize.scales.qparams import choose_qparams, dequantize, quantize_array

ASYMMETRIC = Grid(256, symmetric=False, signed=False)
SYMMETRIC = Grid(256, symmetric=True, signed=True)
GRIDS = [ASYMMETRIC, SYMMETRIC, Grid(255, True, True), Grid(256, False, True), Grid(128, False, False)]
METHODS = ["minmax", "entropy", "percentile", "mse", "auto"]


def tensors(rng) -> dict[str, np.ndarray]:
    normal = rng.standard_normal(200_000, np.float32)
    return {
        "normal": normal,
        "relu": np.maximum(normal, 0),
        "negative": -np.abs(normal),
        "shifted": normal * np.float32(0.3) + 1,
        "heavy": rng.standard_t(3, 200_000).astype(np.float32),
        "outlier": np.append(normal, np.float32([250, -30])),
        "silu": normal * 4 / (1 + np.exp(-4 * normal)),
    }


def quantized_error_ratio(x: np.ndarray, lo: float, hi: float, grid: Grid) -> float:
    """Noise over signal power of the values themselves, by the package's own quantizer."""
    dtype = INT8 if grid.signed else UINT8
    qparams = choose_qparams(lo, hi, dtype=dtype, symmetric=grid.symmetric, qmin=grid.qmin, qmax=grid.qmax)
    error = dequantize(quantize_array(x, qparams), qparams).astype(np.float64) - x
    return float(np.sum(error**2) / np.sum(x.astype(np.float64) ** 2))


@pytest.mark.parametrize("grid", GRIDS)
@pytest.mark.parametrize("method", METHODS)
def test_the_error_told_is_the_error_of_quantizing_the_values(method, grid, rng):
    for name, x in tensors(rng).items():
        chosen = choose_range(TensorStats.from_values(x), grid, CalibrationConfig(method=method))
        real = quantized_error_ratio(x, chosen.lo, chosen.hi, grid)
        assert chosen.error_ratio == pytest.approx(real, rel=0.02), name


@pytest.mark.parametrize("method", METHODS)
def test_ranges_contain_zero_and_stay_inside_the_data(method, rng):
    for x in tensors(rng).values():
        chosen = choose_range(TensorStats.from_values(x), ASYMMETRIC, CalibrationConfig(method=method))
        assert min(x.min(), 0) <= chosen.lo <= 0 <= chosen.hi <= max(x.max(), 0)


def test_minmax_is_exact(rng):
    x = rng.standard_normal(1000, np.float32)
    chosen = choose_range(TensorStats.from_values(x), ASYMMETRIC, CalibrationConfig(method="minmax"))
    assert (chosen.lo, chosen.hi) == (float(x.min()), float(x.max()))


@pytest.mark.parametrize("coverage", [90.0, 99.0, 99.9])
def test_percentile_leaves_out_the_share_asked_for(coverage, rng):
    x = rng.standard_normal(200_000, np.float32)
    config = CalibrationConfig(method="percentile", percentile=coverage)
    wanted = 1 - coverage / 100
    two_sided = choose_range(TensorStats.from_values(x), ASYMMETRIC, config)
    for outside in (np.mean(x < two_sided.lo), np.mean(x > two_sided.hi)):
        assert outside == pytest.approx(wanted / 2, rel=0.1)
    one_sided = choose_range(TensorStats.from_values(np.abs(x)), ASYMMETRIC, config)
    assert np.mean(np.abs(x) > one_sided.hi) == pytest.approx(wanted, rel=0.1)


def test_percentile_of_all_values_is_minmax(rng):
    x = rng.standard_normal(1000, np.float32)
    config = CalibrationConfig(method="percentile", percentile=100.0)
    chosen = choose_range(TensorStats.from_values(x), ASYMMETRIC, config)
    assert (chosen.lo, chosen.hi) == (float(x.min()), float(x.max()))


def test_mse_finds_the_known_optimum_of_a_normal_distribution(rng):
    # Clipping at 3.92 standard deviations is best for 8 bits: Banner et al., 2019, arXiv:1810.05723, table 1.
    x = rng.standard_normal(2_000_000, np.float32)
    chosen = choose_range(TensorStats.from_values(x), SYMMETRIC, CalibrationConfig(method="mse"))
    assert chosen.hi == pytest.approx(3.92, abs=0.08)


@pytest.mark.parametrize("grid", GRIDS)
def test_mse_is_as_good_as_a_dense_search(grid, rng):
    for name, x in tensors(rng).items():
        stats = TensorStats.from_values(x)
        found = choose_range(stats, grid, CalibrationConfig(method="mse")).error_ratio
        amax = float(np.abs(x).max())
        dense = min(
            range_noise_ratio(stats, max(float(x.min()), -t), min(float(x.max()), t), grid)
            for t in amax * np.exp2(np.linspace(-9, 0, 500))
        )
        assert found <= dense * 1.01, name


def test_mse_finds_a_threshold_for_each_side(rng):
    # Dense up to 40 above zero; a single far value below it, which one threshold for both sides must keep.
    x = np.concatenate([rng.uniform(0, 40, 100_000), -np.abs(rng.standard_normal(100_000)), [-30.0]])
    stats = TensorStats.from_values(x)
    chosen = choose_range(stats, ASYMMETRIC, CalibrationConfig(method="mse"))
    best = min(
        range_noise_ratio(stats, lo, hi, ASYMMETRIC)
        for lo in np.linspace(-30, -1, 60)
        for hi in np.linspace(20, 40, 40)
    )
    assert chosen.error_ratio <= best * 1.01
    assert chosen.lo > -25
    assert chosen.hi > 39


def test_auto_is_the_best_of_all_methods(rng):
    for x in tensors(rng).values():
        stats = TensorStats.from_values(x)
        errors = {
            m: choose_range(stats, ASYMMETRIC, CalibrationConfig(method=m)).error_ratio for m in METHODS
        }
        chosen = choose_range(stats, ASYMMETRIC, CalibrationConfig(method="auto"))
        assert chosen.error_ratio == pytest.approx(min(errors.values()), rel=1e-12)
        assert errors[chosen.method] == pytest.approx(chosen.error_ratio, rel=1e-12)


@pytest.mark.parametrize("grid", GRIDS)
@pytest.mark.parametrize("method", METHODS)
def test_a_tensor_that_is_always_zero_has_an_empty_range(method, grid):
    chosen = choose_range(TensorStats.from_values(np.zeros(9)), grid, CalibrationConfig(method=method))
    assert (chosen.lo, chosen.hi, chosen.error_ratio) == (0.0, 0.0, 0.0)


@pytest.mark.parametrize("value", [3.3, -1e-20, 1e30])
@pytest.mark.parametrize("method", METHODS)
def test_a_constant_keeps_its_value(method, value):
    chosen = choose_range(TensorStats.from_values([value] * 4), ASYMMETRIC, CalibrationConfig(method=method))
    assert (chosen.lo, chosen.hi) == (min(0.0, np.float32(value)), max(0.0, np.float32(value)))
    assert chosen.error_ratio == pytest.approx(0.0, abs=1e-12)


def test_entropy_agrees_with_the_definition_written_as_a_loop(rng):
    levels, size = 8, 48
    histogram = rng.poisson(3.0, size).astype(np.float64)
    histogram[[5, 20, 21, 40]] = 0
    histogram[24:32] = 0  # thresholds that end in an empty group

    def divergence(kept: int) -> float:
        p = histogram[:kept].copy()
        p[-1] += histogram[kept:].sum()
        q = np.zeros(kept)
        edges = [level * kept // levels for level in range(levels + 1)]
        for start, end in zip(edges[:-1], edges[1:], strict=True):
            occupied = p[start:end] > 0
            if occupied.any():
                q[start:end][occupied] = max(histogram[start:end].sum(), SMOOTHING) / occupied.sum()
        seen = p > 0
        p, q = p[seen] / p.sum(), q[seen] / histogram[:kept].sum()
        return float(np.sum(p * np.log(p / q)))

    expected = [divergence(kept) for kept in range(levels, size + 1)]
    np.testing.assert_allclose(_divergences(histogram, levels), expected, rtol=1e-9, atol=1e-12)


def test_entropy_clips_an_outlier_but_not_the_bulk(rng):
    x = np.append(rng.standard_normal(100_000, np.float32), np.float32(80))
    chosen = choose_range(TensorStats.from_values(x), SYMMETRIC, CalibrationConfig(method="entropy"))
    assert 3 < chosen.hi < 20


def test_the_grid_is_the_quantizers_own(rng):
    for grid in GRIDS:
        for lo, hi in [(-1.0, 2.0), (0.0, 3.0), (-4.0, 0.0), (-0.1, 7.0), (0.0, 0.0)]:
            scale, zero = grid.scale_and_zero(np.array([lo]), np.array([hi]))
            dtype = INT8 if grid.signed else UINT8
            wanted = choose_qparams(
                lo, hi, dtype=dtype, symmetric=grid.symmetric, qmin=grid.qmin, qmax=grid.qmax
            )
            assert np.float32(scale[0]) == wanted.scale
            assert zero[0] == wanted.zero_point


def test_codes_of_255_levels_are_symmetric():
    assert (Grid(255, True, True).qmin, Grid(255, True, True).qmax) == (-127, 127)
    assert (SYMMETRIC.qmin, SYMMETRIC.qmax) == (-128, 127)


def test_one_level_is_no_grid():
    with pytest.raises(UsageError, match="levels"):
        Grid(1)
