# SPDX-License-Identifier: Apache-2.0
"""Where activations of an engine for a GPU have a zero point, and which."""

import numpy as np
import pytest

from quantrt.calibrate.given import Given
from quantrt.config import CalibrationConfig, QuantizeConfig
from quantrt.dtypes import INT8
from quantrt.quantize.quantize import quantize
from quantrt.quantize.quantized_model import QuantizedModel
from quantrt.quantize.scales.qparams import QParams, choose_qparams
from quantrt.quantize.targets.cuda import CUDA
from tests.nets import net, quantized, samples, weights

HEAD = "c = Conv<pads=[1,1,1,1]>(x, w0) r = Relu(c)"
SHAPES = {
    "w0": (8, 3, 3, 3),
    "square": (8, 8, 3, 3),
    "point": (8, 8, 1, 1),
    "alone": (8, 1, 3, 3),
    "pairs": (8, 2, 3, 3),
    "up": (8, 8, 2, 2),
    "matrix": (8, 5),
    "wide": (8, 16, 1, 1),
}
IMAGES = {"x": samples(4, 3, 9, 9)}

READERS = {
    "pointwise": "y = Conv(r, point)",
    "without padding": "y = Conv(r, square)",
    "padding that is 0": "y = Conv<pads=[0,0,0,0]>(r, square)",
    "valid": 'y = Conv<auto_pad="VALID">(r, square)',
    "by channel": "y = Conv<group=8, pads=[1,1,1,1]>(r, alone)",
    "mean": "p = GlobalAveragePool(r) f = Flatten(p) y = Gemm(f, matrix)",
    "maximum": "p = MaxPool<kernel_shape=[3,3], pads=[1,1,1,1]>(r) y = Conv(p, point)",
    "mean of windows": "p = AveragePool<kernel_shape=[3,3], pads=[1,1,1,1], count_include_pad=1>(r)"
    "q = Conv(r, point) s = Conv(p, point) y = Add(q, s)",
    "product": "t = Transpose<perm=[0,2,3,1]>(r) y = MatMul(t, matrix)",
}
SYMMETRIC = {
    "padding": "y = Conv<pads=[1,1,1,1]>(r, square)",
    "same": 'y = Conv<auto_pad="SAME_UPPER">(r, square)',
    "one of two readers": "a = Conv(r, point) b = Conv<pads=[1,1,1,1]>(r, square) y = Add(a, b)",
    "padding behind a maximum": "p = MaxPool<kernel_shape=[2,2]>(r) y = Conv<pads=[1,1,1,1]>(p, square)",
    "groups": "y = Conv<group=4>(r, pairs)",
    "transposed": "y = ConvTranspose<strides=[2,2]>(r, up)",
    "windows that end behind padding": "p = AveragePool<kernel_shape=[3,3], strides=[2,2], pads=[1,1,1,1],"
    "ceil_mode=1, count_include_pad=1>(r) q = Conv(r, point) m = GlobalAveragePool(q) s = Conv(p, point)"
    "y = Add(s, m)",
}


def model_of(body: str, head: str = HEAD):
    text = f"net (float[N,3,9,9] x) => (float[A,B,C,D] y) {{ {head} {body} }}"
    used = {name: shape for name, shape in SHAPES.items() if f", {name})" in text}
    numbers = {"four": np.array(4.0, np.float32)} if ", four)" in text else {}
    return net(text, {**weights(used), **numbers}, opset=19)


def codes_of(body: str, head: str = HEAD) -> QuantizedModel:
    return quantized(model_of(body, head), CUDA, IMAGES)


def zero_point(codes: QuantizedModel, value: str) -> int:
    return int(codes.activations[value].zero_point)


@pytest.mark.parametrize("name", READERS)
def test_what_is_never_negative_has_all_codes(name: str):
    codes = codes_of(READERS[name])
    value = codes.placement.uses[next(edge for edge in codes.placement.uses if "r" in _read(codes, edge))]
    assert zero_point(codes, value) == -128
    assert zero_point(codes, "x") == 0  # of either sign


@pytest.mark.parametrize("name", SYMMETRIC)
def test_what_a_kernel_with_padding_reads_has_none(name: str):
    codes = codes_of(SYMMETRIC[name])
    assert zero_point(codes, "r") == 0


def _read(codes: QuantizedModel, edge: tuple[str, int]) -> set[str]:
    (node,) = (node for node in codes.graph.graph if node.name == edge[0])
    return {node.inputs[edge[1]].name}


def test_an_image_of_few_channels_is_copied_with_its_padding():
    codes = codes_of("y = Conv(r, point)", "p = Abs(x) c = Conv<pads=[1,1,1,1]>(p, w0) r = Relu(c)")
    assert zero_point(codes, "p") == -128


def test_a_small_negative_tail_takes_few_codes():
    codes = codes_of(
        "y = Conv(h, point)", "c = Conv<pads=[1,1,1,1]>(x, w0) d = Mul(c, four) h = HardSwish(d)"
    )
    grid = codes.activations["h"]
    assert -128 < int(grid.zero_point) < -90 and int(grid.zero_point) % 2 == 0


def test_a_sum_reads_its_skip_branch_on_its_grid():
    codes = codes_of("a = Conv(r, point) s = Add(a, r) t = Relu(s) y = Conv(t, point)")
    assert {zero_point(codes, name) for name in ("r", "t")} == {-128}


def test_parts_of_a_concatenation_share_their_grid():
    codes = codes_of("a = Conv(r, point) b = Relu(a) k = Concat<axis=1>(r, b) y = Conv(k, wide)")
    grids = {(float(g.scale), int(g.zero_point)) for n, g in codes.activations.items() if n in "rbk"}
    assert grids == {(float(codes.activations["b"].scale), -128)}


def test_given_scales_stay_symmetric():
    model = model_of("y = Conv(r, point)")
    given = Given({"x": 0.02, "r": 0.03}, "a cache")
    codes = quantize(model, None, CUDA, QuantizeConfig(), CalibrationConfig(method="minmax"), given=given)
    assert codes.activations["r"].zero_point == 0
    assert codes.activations["r"].scale == np.float32(0.03)


def grid(lo: float, hi: float, unit: int) -> QParams:
    bounds = np.asarray(lo, np.float32), np.asarray(hi, np.float32)
    return choose_qparams(*bounds, dtype=INT8, symmetric=False, qmin=-128, qmax=127, zero_point_unit=unit)


@pytest.mark.parametrize("unit", [2, 4])
@pytest.mark.parametrize("lo", [0.0, -1e-4, -0.0117, -0.17, -0.278, -0.375, -0.9, -3.0, -40.0])
@pytest.mark.parametrize("hi", [0.0, 0.01, 1.0, 3.1, 6.0])
def test_coarse_zero_points_clip_a_code_at_most(lo: float, hi: float, unit: int):
    coarse, fine = grid(lo, hi, unit), grid(lo, hi, 1)
    zero, scale = int(coarse.zero_point), float(coarse.scale)
    assert zero % unit == 0 and -128 <= zero <= 127
    low, high = (-128 - zero) * scale, (127 - zero) * scale
    least, most = (low, high) if hi >= -lo else (-high, -low)
    assert most == pytest.approx(max(hi, -lo)) or hi == lo == 0.0
    smaller, larger = sorted((-lo, hi))
    assert -least >= smaller - (unit / 2 + 0.5) * (1 + smaller / (larger or 1)) * scale
    assert scale == pytest.approx(float(fine.scale), rel=unit / 150)
