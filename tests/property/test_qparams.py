# SPDX-License-Identifier: Apache-2.0
"""The laws of quantization arithmetic, for any range and any values."""

import numpy as np
import onnx
import onnx.parser
import onnxruntime
from hypothesis import example, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from quantrt.dtypes import INT8, UINT8
from quantrt.quantize.scales.qparams import (
    QParams,
    choose_qparams,
    dequantize,
    quantize_array,
    quantize_weight,
)

TINY = float(np.finfo(np.float32).tiny)
EPSILON = float(np.finfo(np.float32).eps)

GRIDS = (
    (UINT8, False, 0, 255),
    (UINT8, True, 0, 255),
    (INT8, False, -128, 127),
    (INT8, True, -128, 127),
    (INT8, True, -127, 127),
)

bounds = st.floats(-(2.0**100), 2.0**100, width=32)
grids = st.sampled_from(GRIDS)
ratios = st.lists(st.floats(0, 1), min_size=1, max_size=50)


def choose(lo: float, hi: float, grid: tuple) -> QParams:
    dtype, symmetric, qmin, qmax = grid
    lo, hi = min(lo, hi), max(lo, hi)
    if symmetric and qmin == 0:
        lo = max(lo, 0.0)
    return choose_qparams(
        np.float32(lo), np.float32(hi), dtype=dtype, symmetric=symmetric, qmin=qmin, qmax=qmax
    )


@given(bounds, bounds, grids, ratios)
def test_values_in_range_come_back_within_half_a_step(lo, hi, grid, ratios):
    qparams = choose(lo, hi, grid)
    lo, hi = min(lo, hi, 0.0), max(lo, hi, 0.0)
    if grid[1] and grid[2] == 0:
        lo = 0.0
    x = np.clip(np.array([lo + r * (hi - lo) for r in ratios], np.float32), np.float32(lo), np.float32(hi))
    back = dequantize(quantize_array(x, qparams), qparams).astype(np.float64)
    scale = float(qparams.scale)
    # The quotient x / scale is rounded to float32, and so are scale and the product: some 2**-24 of |x| each.
    slack = 4 * EPSILON * np.abs(x.astype(np.float64))
    if scale == 1.0 and hi - lo < 1.0:  # a range too narrow for float32
        assert hi - lo <= 255 * TINY * (1 + EPSILON)
    assert (np.abs(back - x) <= scale / 2 + slack).all()


@given(bounds, bounds, grids)
def test_zero_is_exact(lo, hi, grid):
    qparams = choose(lo, hi, grid)
    zero = np.zeros(1, np.float32)
    assert dequantize(quantize_array(zero, qparams), qparams)[0] == 0.0


@given(bounds, bounds, grids, hnp.arrays(np.float32, 20, elements=st.floats(width=32, allow_nan=False)))
def test_codes_stay_in_range_and_keep_the_order(lo, hi, grid, x):
    codes = quantize_array(np.sort(x), choose(lo, hi, grid)).astype(int)
    assert codes.min() >= grid[2] and codes.max() <= grid[3]
    assert (np.diff(codes) >= 0).all()


@given(bounds, bounds, grids)
def test_a_scale_is_a_normal_float32_above_zero(lo, hi, grid):
    qparams = choose(lo, hi, grid)
    assert qparams.scale.dtype == np.float32
    assert qparams.scale >= TINY and np.isfinite(qparams.scale)
    assert grid[2] <= qparams.zero_point <= grid[3]
    if grid[1]:
        assert qparams.zero_point == 0


@given(bounds, bounds, grids, st.integers(0, 255))
def test_every_code_survives_a_round_trip(lo, hi, grid, step):
    qparams = choose(lo, hi, grid)
    codes = np.array([min(grid[2] + step, grid[3])]).astype(grid[0].name)
    assert quantize_array(dequantize(codes, qparams), qparams)[0] == codes[0]


def onnx_session(dtype: str) -> onnxruntime.InferenceSession:
    text = f"""<ir_version: 9, opset_import: ["" : 17]>
    q (float[N] x, float s, {dtype} z) => ({dtype}[N] q) {{ q = QuantizeLinear(x, s, z) }}"""
    model = onnx.parser.parse_model(text)
    return onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])


SESSIONS = {"uint8": onnx_session("uint8"), "int8": onnx_session("int8")}


@settings(max_examples=300)
@given(
    st.floats(2.0**-33, 2.0**33, width=32),
    st.integers(0, 255),
    st.sampled_from([UINT8, INT8]),
    hnp.arrays(np.float32, 40, elements=st.floats(-(2.0**40), 2.0**40, width=32)),
    hnp.arrays(np.int16, 40, elements=st.integers(-700, 700)),
)
def test_codes_equal_those_of_onnx_runtime(scale, zero_step, dtype, x, halves):
    scale = np.float32(scale)
    x = np.concatenate([x, halves.astype(np.float32) / 2 * scale])  # ties and both ends
    zero = np.int32((dtype.qmin or 0) + zero_step)
    qparams = QParams(scale, zero, dtype, None, dtype.qmin, dtype.qmax)
    feeds = {"x": x, "s": np.array(scale), "z": np.array(zero.astype(dtype.name))}
    (wanted,) = SESSIONS[dtype.name].run(None, feeds)
    np.testing.assert_array_equal(quantize_array(x, qparams), wanted)


weight_arrays = hnp.arrays(
    np.float32,
    st.tuples(st.integers(1, 4), st.integers(1, 6)),
    elements=st.floats(-(2.0**66), 2.0**66, width=32),
)


@given(weight_arrays, st.sampled_from([127, 63]))
def test_weights_use_a_symmetric_narrow_range_per_channel(weight, qmax):
    tensor = quantize_weight(weight, axis=0, qmax=qmax)
    assert tensor.codes.dtype == np.int8 and tensor.codes.shape == weight.shape
    assert np.abs(tensor.codes.astype(int)).max() <= qmax
    assert not tensor.qparams.zero_point.any()
    assert tensor.qparams.scale.shape == (len(weight),)


@given(weight_arrays)
@example(np.array([[3.3162078e19, 4.8971896e19]], np.float32))
def test_the_scale_of_a_weight_row_is_no_worse_than_that_of_its_largest_value(weight):
    tensor = quantize_weight(weight, axis=0)
    full = np.abs(weight).max(axis=1) / np.float32(127)
    scale = np.where(full >= TINY, full, np.float32(1))[:, None]
    plain = np.clip(np.rint(weight / scale), -127, 127) * scale
    error = np.square(tensor.dequantize().astype(np.float64) - weight).sum(axis=1)
    plain_error = np.square(plain.astype(np.float64) - weight).sum(axis=1)
    rounding = weight.shape[1] * np.square(EPSILON * np.abs(weight).max(axis=1).astype(np.float64))
    assert (error <= plain_error * (1 + 1e-4) + rounding).all()


@given(weight_arrays)
def test_a_channel_does_not_depend_on_the_others(weight):
    together = quantize_weight(weight, axis=0)
    for row, codes in zip(weight, together.codes, strict=True):
        np.testing.assert_array_equal(quantize_weight(row[None], axis=None).codes[0], codes)
