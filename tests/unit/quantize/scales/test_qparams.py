# SPDX-License-Identifier: Apache-2.0
import numpy as np
import pytest

from quantrt.dtypes import FP8, INT8, UINT8, DType
from quantrt.errors import ModelError
from quantrt.quantize.scales import qparams as qparams_module
from quantrt.quantize.scales.qparams import (
    QParams,
    bias_qparams,
    choose_qparams,
    dequantize,
    given_qparams,
    quantize_array,
    quantize_weight,
)

UNIT = QParams(np.float32(1), np.int32(0), INT8, None, -128, 127)


def choose(lo, hi, *, symmetric=False, dtype=UINT8, qmin=0, qmax=255, axis=None):
    return choose_qparams(
        np.asarray(lo, np.float32),
        np.asarray(hi, np.float32),
        dtype=dtype,
        symmetric=symmetric,
        qmin=qmin,
        qmax=qmax,
        axis=axis,
    )


@pytest.mark.parametrize(
    ("lo", "hi", "options", "scale", "zero_point"),
    [
        (0.0, 2.55, {}, 0.01, 0),
        (-2.55, 0.0, {}, 0.01, 255),
        (-1.0, 1.55, {}, 0.01, 100),
        (1.0, 2.55, {}, 0.01, 0),
        (-2.55, -1.0, {}, 0.01, 255),
        (-1.28, 1.27, {"dtype": INT8, "qmin": -128, "qmax": 127}, 0.01, 0),
        (-1.0, 1.27, {"dtype": INT8, "symmetric": True, "qmin": -128, "qmax": 127}, 0.01, 0),
        (-1.28, 1.0, {"dtype": INT8, "symmetric": True, "qmin": -128, "qmax": 127}, 0.01, 0),
        (-1.27, 1.0, {"dtype": INT8, "symmetric": True, "qmin": -127, "qmax": 127}, 0.01, 0),
        (0.0, 2.55, {"symmetric": True}, 0.01, 0),
        (0.0, 0.0, {}, 1.0, 0),
        (0.0, 0.0, {"dtype": INT8, "symmetric": True, "qmin": -128, "qmax": 127}, 1.0, 0),
        (0.0, 1e-40, {}, 1.0, 0),
    ],
)
def test_a_range_becomes_a_grid(lo, hi, options, scale, zero_point):
    qparams = choose(lo, hi, **options)
    assert qparams.scale == pytest.approx(scale, rel=1e-6)
    assert qparams.zero_point == zero_point


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_a_range_that_is_not_finite_is_refused(bad):
    with pytest.raises(ModelError, match="not finite"):
        choose(min(bad, 0.0), max(bad, 0.0) if not np.isnan(bad) else np.nan)


def test_a_range_per_channel_gives_a_grid_per_channel():
    qparams = choose([0.0, -1.0], [2.55, 1.55], axis=1)
    np.testing.assert_allclose(qparams.scale, [0.01, 0.01], rtol=1e-6)
    assert qparams.zero_point.tolist() == [0, 100]
    x = np.array([[2.55, 1.55], [0.0, -1.0]], np.float32)
    assert quantize_array(x, qparams).tolist() == [[255, 255], [0, 0]]


@pytest.mark.parametrize(("lo", "hi"), [([0.0, np.nan], [1.0, 1.0]), ([0.0, 0.0], [1.0, np.inf])])
def test_one_channel_that_is_not_finite_is_refused(lo, hi):
    with pytest.raises(ModelError, match="not finite"):
        choose(lo, hi, axis=0)


def test_channels_with_and_without_a_zero_point_have_their_own():
    qparams = choose([0.0, -1.0], [2.55, 1.55], axis=0)
    assert qparams.zero_point.tolist() == [0, 100]
    x = np.array([[2.55, 0.0], [1.55, -1.0]], np.float32)
    codes = quantize_array(x, qparams)
    assert codes.tolist() == [[255, 0], [255, 0]]
    np.testing.assert_allclose(dequantize(codes, qparams), x, rtol=1e-6)


@pytest.mark.parametrize(
    ("dtype", "qmin", "qmax", "zero_point"),
    [(INT8, -128, 127, 0), (UINT8, 0, 255, 128), (FP8, -448, 448, 0)],
    ids=["int8", "uint8", "fp8"],
)
def test_a_given_scale_is_kept_and_zero_is_the_middle_code(
    dtype: DType, qmin: int, qmax: int, zero_point: int
):
    grid = given_qparams(0.1, dtype=dtype, qmin=qmin, qmax=qmax)
    assert (grid.scale, grid.zero_point, grid.axis) == (np.float32(0.1), zero_point, None)
    codes = quantize_array(np.array([-1.0, 0.0, 1.2], np.float32), grid).astype(np.float64) - zero_point
    np.testing.assert_allclose(codes, [-10, 0, 12])


def test_a_given_scale_is_int8s_where_nothing_else_is_said():
    codes = quantize_array(np.array([-1e3, 1e3], np.float32), given_qparams(0.1))
    assert codes.dtype == np.int8 and codes.tolist() == [-128, 127]


@pytest.mark.parametrize(
    ("lo", "hi", "unit", "scale", "zero_point"),
    [
        (0.0, 2.55, 2, 0.01, -128),
        (-0.51, 2.04, 2, 2.04 / (127 + 76), -76),  # -77 in steps of 1, halfway: to the even multiple
        (-0.49, 2.06, 4, 2.06 / (127 + 80), -80),  # -79
        (-2.55, 0.0, 2, 2.55 / (128 + 126), 126),  # 127: the greatest multiple below it
        (-2.04, 0.51, 4, 2.04 / (128 + 76), 76),  # 76: the negative side is the larger one
        (0.0, 0.0, 2, 1.0, -128),
    ],
)
def test_a_coarse_zero_point_clips_the_smaller_side_alone(lo, hi, unit, scale, zero_point):
    bounds = np.asarray(lo, np.float32), np.asarray(hi, np.float32)
    grid = choose_qparams(*bounds, dtype=INT8, symmetric=False, qmin=-128, qmax=127, zero_point_unit=unit)
    assert grid.zero_point == zero_point
    assert grid.scale == pytest.approx(scale, rel=1e-6)


def test_ties_go_to_the_even_code():
    x = np.array([0.5, 1.5, 2.5, -0.5, -1.5, -2.5], np.float32)
    assert quantize_array(x, UNIT).tolist() == [0, 2, 2, 0, -2, -2]


def test_values_outside_the_range_saturate():
    x = np.array([1000.0, -1000.0, 3e38, -3e38, np.inf, -np.inf], np.float32)
    tiny = QParams(np.float32(1e-30), np.int32(0), INT8, None, -128, 127)
    for qparams in (UNIT, tiny):
        assert quantize_array(x, qparams).tolist() == [127, -128] * 3


def test_codes_come_back_as_multiples_of_the_scale():
    qparams = QParams(np.float32(0.5), np.int32(3), UINT8, None, 0, 255)
    back = dequantize(np.array([0, 3, 255], np.uint8), qparams)
    assert back.dtype == np.float32
    assert back.tolist() == [-1.5, 0.0, 126.0]


def test_a_weight_has_a_scale_per_output_channel():
    weight = np.array([[1.27, -0.5], [0.0, -12.7]], np.float32)
    rows = quantize_weight(weight, axis=0)
    assert rows.qparams.axis == 0
    np.testing.assert_allclose(rows.dequantize(), weight, atol=0.05)
    columns = quantize_weight(weight.T.copy(), axis=1)
    np.testing.assert_array_equal(columns.codes, rows.codes.T)
    np.testing.assert_array_equal(columns.qparams.scale, rows.qparams.scale)
    whole = quantize_weight(weight, axis=None)
    assert whole.qparams.scale.shape == () and whole.qparams.axis is None


def test_a_row_of_zeros_has_scale_one_and_codes_zero():
    tensor = quantize_weight(np.array([[0, 0], [1, 2]], np.float32), axis=0)
    assert tensor.qparams.scale[0] == 1.0
    assert tensor.codes[0].tolist() == [0, 0]


@pytest.mark.parametrize("amax", [1e-45, 1e-40, 1e-36])
def test_a_row_too_small_for_a_normal_scale_becomes_zero(amax):
    tensor = quantize_weight(np.array([[amax, -amax]], np.float32), axis=0)
    assert tensor.qparams.scale.tolist() == [1.0]
    assert not tensor.codes.any()


def test_huge_weights_do_not_overflow():
    weight = np.array([[3e38, -1.5e38, 1e38]], np.float32)
    tensor = quantize_weight(weight, axis=0)
    np.testing.assert_allclose(tensor.dequantize(), weight, rtol=0.02)


def test_a_long_row_with_an_outlier_is_clipped(rng: np.random.Generator):
    row = rng.standard_normal(100_000).astype(np.float32)[None]
    row[0, 0] = 1.2 * np.abs(row).max()
    scale = quantize_weight(row, axis=0).qparams.scale[0]
    assert scale < np.abs(row).max() / 127 * 0.95


def test_seven_bit_weights_stay_within_63(rng: np.random.Generator):
    codes = quantize_weight(rng.standard_normal((8, 9)).astype(np.float32), axis=0, qmax=63).codes
    assert np.abs(codes.astype(int)).max() == 63


def test_the_least_scale_is_a_floor_and_serves_rows_of_zeros():
    weight = np.array([[1.27, 0], [0, 0], [0, 0]], np.float32)
    floor = np.array([1e-6, 0.25, 0.0])
    scale = quantize_weight(weight, axis=0, min_scale=floor).qparams.scale
    np.testing.assert_allclose(scale, [0.01, 0.25, 1.0], rtol=1e-6)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_a_weight_that_is_not_finite_is_refused(bad):
    with pytest.raises(ModelError, match="NaN or infinite"):
        quantize_weight(np.array([[1.0, bad]], np.float32), axis=0)


def test_a_bias_has_the_scale_of_the_accumulator():
    activation = choose(0.0, 2.55)
    weight = quantize_weight(np.array([[1.27], [2.54]], np.float32), axis=0).qparams
    grid = bias_qparams(activation, weight)
    np.testing.assert_allclose(grid.scale, [1e-4, 2e-4], rtol=1e-5)
    assert grid.dtype.name == "int32" and grid.axis == 0 and not grid.zero_point.any()
    assert quantize_array(np.array([1.0, -1.0], np.float32), grid).tolist() == [10000, -5000]


E8 = QParams(np.float32(1), np.int32(0), FP8, None, -448, 448)


def e4m3(x: list[float]) -> list[float]:
    return quantize_array(np.array(x, np.float32), E8).astype(np.float32).tolist()


def test_fp8_rounds_to_the_even_mantissa_and_saturates():
    assert e4m3([17, 19, 21, 1.0625, 1.1875, -17, -19]) == [16, 20, 20, 1.0, 1.25, -16, -20]
    assert e4m3([448, 449, 464, 1e30, np.inf, -np.inf, -1e9]) == [448, 448, 448, 448, 448, -448, -448]
    assert e4m3([2**-9, 2**-10, 1.5 * 2**-10, 2.5 * 2**-9, 1e-40]) == [2**-9, 0, 2**-9, 2 * 2**-9, 0]


def test_fp8_keeps_nan():
    codes = quantize_array(np.array([np.nan, -np.nan, 1.0], np.float32), E8)
    assert np.isnan(codes.astype(np.float32)).tolist() == [True, True, False]
    assert np.isnan(dequantize(codes, E8)).tolist() == [True, True, False]


def test_every_fp8_number_is_its_own_code():
    codes = np.arange(256, dtype=np.uint8).view("float8_e4m3fn")
    finite = codes[np.isfinite(codes.astype(np.float32))]
    assert len(finite) == 254
    np.testing.assert_array_equal(quantize_array(finite.astype(np.float32), E8).view("u1"), finite.view("u1"))


def test_fp8_scales_are_the_largest_magnitude_over_448():
    grid = choose(-2.0, 1.0, symmetric=True, dtype=FP8, qmin=-448, qmax=448)
    assert (grid.scale, grid.zero_point) == (np.float32(2.0 / 448), 0)
    weight = np.array([[1.0, -4.0], [0.0, 0.0], [0.5, 0.25]], np.float32)
    tensor = quantize_weight(weight, axis=0, dtype=FP8, qmax=448)
    np.testing.assert_array_equal(tensor.qparams.scale, np.float32([4 / 448, 1, 0.5 / 448]))
    assert tensor.codes.dtype == "float8_e4m3fn"
    np.testing.assert_array_equal(tensor.codes.astype(np.float32), [[112, -448], [0, 0], [448, 224]])


def test_no_weight_in_fp8_is_clipped(rng: np.random.Generator):
    row = rng.standard_normal((1, 10_000)).astype(np.float32)
    row[0, 0] = 1.2 * np.abs(row).max()  # which int8 clips
    grid = quantize_weight(row, axis=0, dtype=FP8, qmax=448).qparams
    np.testing.assert_array_equal(grid.scale, row[:, 0] / np.float32(448))


def test_a_weight_with_nan_has_no_fp8_codes():
    with pytest.raises(ModelError, match="NaN or infinite"):
        quantize_weight(np.array([[np.nan, 1.0]], np.float32), axis=0, dtype=FP8, qmax=448)


@pytest.mark.parametrize("axis", [0, 1, None])
@pytest.mark.parametrize("dtype", [INT8, UINT8, FP8])
def test_large_arrays_are_rounded_in_parts(
    axis: int | None, dtype: DType, rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
):
    x = rng.standard_normal((30, 20, 3)).astype(np.float32)
    scale = np.float32(0.02) if axis is None else rng.uniform(0.01, 0.03, x.shape[axis]).astype(np.float32)
    zero_point = np.full(np.shape(scale), 128 * (dtype is UINT8), np.int32)
    qparams = QParams(np.asarray(scale), zero_point, dtype, axis, dtype.qmin or 0, dtype.qmax or 0)
    whole = quantize_array(x, qparams)
    sizes: list[int] = []

    def counted(part: np.ndarray, *rest: object) -> np.ndarray:
        sizes.append(part.size)
        return codes_of_part(part, *rest)

    codes_of_part = qparams_module._codes
    monkeypatch.setattr(qparams_module, "_codes", counted)
    monkeypatch.setattr(qparams_module, "BLOCK_ELEMENTS", 200)
    parts = quantize_array(x, qparams)
    assert sizes == [180] * 10  # three of 30 rows of 60 values at a time
    assert parts.dtype == whole.dtype
    np.testing.assert_array_equal(parts.view(np.uint8), whole.view(np.uint8))
