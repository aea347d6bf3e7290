# SPDX-License-Identifier: Apache-2.0
"""Models in FP8: what is placed, on which grids, and as ONNX."""

import numpy as np
import onnx
import onnx_ir as ir
import pytest

from quantrt.calibrate.given import Given
from quantrt.config import CalibrationConfig, QuantizeConfig
from quantrt.dtypes import FP8, INT8
from quantrt.model.model import Model
from quantrt.quantize.fit.fit import TRIED, fit, observe_reference
from quantrt.quantize.qdq.write import write
from quantrt.quantize.quantize import quantize
from quantrt.quantize.record import from_record, record_of
from quantrt.quantize.scales.qparams import quantize_array
from quantrt.quantize.targets.cuda_fp8 import CUDA_FP8
from quantrt.regions.expressions.lookup import LARGE_TABLE
from tests.nets import net, observe, quantized, resnet, run_ort, samples

MLP = """net (float[N,7,64] x) => (float[N,7,32] y) {
  h = MatMul(x, w)
  hb = Add(h, b)
  t = Erf(hb)
  m = Sigmoid(t)
  s = Sub(t, m)
  y = MatMul(s, v)
}"""
ARRAYS = {"w": samples(64, 128, seed=3) / 8, "b": samples(128, seed=5), "v": samples(128, 32, seed=4) / 11}
X = {"x": samples(16, 7, 64)}


def mlp(opset: int = 17) -> Model:
    return net(MLP, ARRAYS, opset=opset)


def sqnr_db(want: np.ndarray, got: np.ndarray) -> float:
    return float(10 * np.log10(np.square(want).sum() / np.square(got - want).sum()))


def test_products_are_placed_and_nothing_else():
    found = quantized(mlp(), CUDA_FP8, X)
    assert {row.op_type for row in found.placement.decisions if row.is_int8} == {"MatMul"}
    assert {name: grid.dtype for name, grid in found.activations.items()} == {"x": FP8, "s": FP8}
    largest = np.abs(X["x"]).max()
    assert found.activations["x"].scale == pytest.approx(largest / 448, rel=1e-6)
    assert all(tensor.codes.dtype == "float8_e4m3fn" for tensor in found.weights.values())
    assert {tensor.qparams.scale.shape for tensor in found.weights.values()} == {(128,), (32,)}


def test_convolutions_are_int8_beside_products_in_fp8():
    found = quantized(resnet(), CUDA_FP8, {"x": samples(8, 3, 16, 16)})
    kinds = {(row.op_type, row.is_int8) for row in found.placement.decisions}
    assert {("Conv", True), ("Gemm", True), ("Add", False)} <= kinds
    nodes = {node.name: node.op_type for node in found.graph.graph}
    readers = {(nodes[use[0]], found.activations[name].dtype) for use, name in found.placement.uses.items()}
    assert readers == {("Conv", INT8), ("MaxPool", INT8), ("Flatten", FP8)}
    assert {(nodes[use[0]], x.qparams.dtype) for use, x in found.weights.items()} == {
        ("Conv", INT8),
        ("Gemm", FP8),
    }
    assert not any(grid.zero_point for grid in found.activations.values())
    x = {"x": samples(4, 3, 16, 16, seed=3)}
    (want,), (got,) = run_ort(resnet().graph, x), run_ort(write(found), x)
    assert sqnr_db(want, got) > 20


def test_a_value_has_codes_of_one_kind():
    text = """net (float[N,8,4,4] x) => (float[N,8,4,4] y, float[N,8,16] z) {
      y = Conv<pads=[1,1,1,1]>(x, k)
      f = Reshape(x, shape)
      z = MatMul(f, w)
    }"""
    arrays = {"k": samples(8, 8, 3, 3), "w": samples(16, 16), "shape": np.asarray([0, 8, 16], np.int64)}
    found = quantized(net(text, arrays), CUDA_FP8, {"x": samples(4, 8, 4, 4)})
    rows = {row.op_type: row for row in found.placement.decisions}
    assert not rows["Conv"].is_int8
    assert rows["Conv"].reason == "'MatMul_2' reads fp8 codes of its input, not int8 ones"
    assert {grid.dtype for grid in found.activations.values()} == {FP8}
    kept = quantized(net(text, arrays), CUDA_FP8, {"x": samples(4, 8, 4, 4)}, exclude=("MatMul_2",))
    assert not kept.has_int8  # a layer that goes back to floats changes no other's codes


def test_what_moves_pixels_moves_int8_alone():
    text = """net (float[N,8,16,16] x) => (float[N,8,32,32] y, float[N,8,8,5] z) {
      u = Resize<mode="nearest", coordinate_transformation_mode="asymmetric"> (x, , scales)
      y = Conv<pads=[1,1,1,1]>(u, k)
      t = Tanh(x)
      p = MaxPool<kernel_shape=[2,2], strides=[2,2]>(t)
      z = MatMul(p, w)
    }"""
    arrays = {"k": samples(8, 8, 3, 3), "w": samples(8, 5), "scales": np.asarray([1, 1, 2, 2], np.float32)}
    found = quantized(net(text, arrays), CUDA_FP8, {"x": samples(4, 8, 16, 16)})
    assert {name: grid.dtype for name, grid in found.activations.items()} == {"x": INT8, "p": FP8}


def test_ranges_of_integers_are_chosen_beside_whole_ones():
    model, config, inputs = resnet(), QuantizeConfig(), {"x": samples(8, 3, 16, 16)}
    stats = observe(model, (CUDA_FP8,), inputs)
    found = fit(
        model,
        stats,
        CUDA_FP8,
        observe_reference(model, [inputs], config),
        config=config,
        calibration=CalibrationConfig(),
    )
    assert set(TRIED) <= found.noise_ratios.keys()


@pytest.mark.parametrize("opset", [13, 17, 19, 21])
def test_the_model_as_onnx_runs_in_onnxruntime(opset: int):
    found = quantized(mlp(opset), CUDA_FP8, X)
    graph = write(found)
    assert graph.opset_imports[""] == max(opset, 19)
    onnx.checker.check_model(ir.to_proto(graph), full_check=True)
    zeros = [v for name, v in graph.graph.initializers.items() if name.endswith("_zero_point")]
    assert zeros
    assert {value.const_value.dtype for value in zeros} == {ir.DataType.FLOAT8E4M3FN}
    (want,) = run_ort(mlp(opset).graph, X)
    (got,) = run_ort(graph, X)
    assert 24 < sqnr_db(want, got) < 30


def test_the_fake_quantized_model_rounds_as_the_arithmetic_says():
    model = net("net (float[N,64] x) => (float[N,64] y) { y = MatMul(x, w) }", {"w": np.eye(64, dtype="f4")})
    found = quantized(model, CUDA_FP8, {"x": samples(9, 64)})
    x = samples(5, 64, seed=7) * 3  # some beyond the range
    scale = found.activations["x"].scale
    codes = quantize_array(x, found.activations["x"]).astype(np.float32)
    assert np.abs(codes).max() == 448 < np.abs(x / scale).max()
    (got,) = run_ort(write(found), {"x": x})
    np.testing.assert_allclose(got, codes * scale, rtol=1e-6)
    x[0, 0] = np.nan
    (got,) = run_ort(write(found), {"x": x})
    assert np.isnan(got[0]).all() and np.isfinite(got[1:]).all()


def test_tables_are_int8():
    text = "net (int64[N] i) => (float[N,8] y) { r = Gather(table, i) y = MatMul(r, w) }"
    arrays = {"table": samples(LARGE_TABLE // 8 + 8, 8), "w": samples(8, 8)}
    found = quantized(net(text, arrays), CUDA_FP8, {"i": np.arange(16, dtype=np.int64)})
    kinds = {use[0].partition("_")[0]: tensor.qparams.dtype for use, tensor in found.weights.items()}
    assert kinds == {"Gather": INT8, "MatMul": FP8}


def test_ranges_are_whole_and_one_method_is_tried():
    model, config = mlp(), QuantizeConfig()
    stats = observe(model, (CUDA_FP8,), X)
    found = fit(
        model,
        stats,
        CUDA_FP8,
        observe_reference(model, [X], config),
        config=config,
        calibration=CalibrationConfig(),
    )
    assert found.method == "minmax"
    assert found.noise_ratios == {}
    want, got = (run_ort(graph, X)[0] for graph in (model.graph, write(found.model)))
    assert 1e-3 < np.square(got - want).sum() / np.square(want).sum() < 1e-2
    told = quantize(model, stats, CUDA_FP8, config, CalibrationConfig(method="entropy"))
    assert told.notes == ("fp8 takes whole ranges: method 'entropy' is for integers alone",)


def test_a_given_int8_scale_stands_for_the_range_it_had():
    given = Given({"x": 0.5, "s": 0.25}, "a cache")
    found = quantize(mlp(), None, CUDA_FP8, QuantizeConfig(), CalibrationConfig(), given=given)
    assert found.activations["x"].scale == pytest.approx(0.5 * 127 / 448)


def test_an_opset_without_float8_leaves_the_model_float():
    model = mlp()
    model.graph.opset_imports[""] = 12
    found = quantize(
        model, None, CUDA_FP8, QuantizeConfig(), CalibrationConfig(), given=Given({"x": 1.0}, "a cache")
    )
    assert not found.has_int8
    assert "opset 12 has no float8 codes" in found.placement.decisions[0].reason


def test_the_record_gives_the_same_model():
    found = quantized(mlp(), CUDA_FP8, X)
    again = from_record(mlp(), record_of(found), CUDA_FP8)
    (want,) = run_ort(write(found), X)
    (got,) = run_ort(write(again), X)
    np.testing.assert_array_equal(got, want)
