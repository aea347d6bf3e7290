# SPDX-License-Identifier: Apache-2.0
"""Scales of each row: values against float64, what is shared, what stays static, and what needs no data."""

from dataclasses import replace

import numpy as np
import onnx_ir as ir
import pytest

from quantrt.config import CalibrationConfig, QuantizeConfig
from quantrt.errors import DataError, UsageError
from quantrt.model.model import Model
from quantrt.quantize.fit.fit import ROW_SCALES, fit, sample_reference
from quantrt.quantize.mixed import keep_float
from quantrt.quantize.qdq.per_token import spell_per_token
from quantrt.quantize.qdq.write import write
from quantrt.quantize.quantized_model import QuantizedModel
from quantrt.quantize.record import from_record, record_of
from quantrt.quantize.scales.qparams import QuantizedTensor, dequantize
from quantrt.quantize.target import Target
from quantrt.quantize.targets import TARGETS, target_named
from quantrt.quantize.targets.cuda import CUDA
from quantrt.quantize.targets.cuda_fp8 import CUDA_FP8
from quantrt.quantize.targets.onnxruntime import ORT
from quantrt.reference.metrics import sqnr_db
from quantrt.regions.partition import partition
from quantrt.regions.region import Gemm
from tests.nets import constant, net, nodes, quantized, run_openvino, run_ort, samples, weights

MLP = """net (float[B,T,24] x) => (float[B,T,24] y) {
  u = MatMul(x, w0)
  v = Add(u, b0)
  r = Relu(v)
  d = MatMul(r, w1)
  y = Add(d, x)
}"""
SHAPES = {"w0": (24, 96), "b0": (96,), "w1": (96, 24)}
CONFIG = QuantizeConfig(activations="per-token")
all_targets = pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.name)


def mlp(*, opset: int = 17) -> Model:
    return net(MLP, weights(SHAPES), opset=opset)


def outliers(*shape: int) -> np.ndarray:
    """Rows of very different size, one of zeros."""
    x = samples(*shape)
    x *= np.float32(10.0) ** np.linspace(-3, 3, shape[-2], dtype=np.float32)[:, None]
    x[..., 0, :] = 0.0
    return x


def without_data(model: Model, target: Target, config: QuantizeConfig = CONFIG) -> QuantizedModel:
    options = CalibrationConfig()
    reference = sample_reference(model, None, config, options)
    return fit(model, None, target, reference, config=config, calibration=options).model


def floats_of(weight: QuantizedTensor) -> np.ndarray:
    return dequantize(weight.codes, weight.qparams).astype(np.float64)


def rounded_rows(x: np.ndarray) -> np.ndarray:
    """What the codes of rows stand for, in float64."""
    scale = np.maximum(np.abs(x).max(-1, keepdims=True), 1e-30).astype(np.float64) / 127
    return np.rint(x / scale) * scale


@all_targets
@pytest.mark.parametrize("opset", [13, 17, 21])
def test_each_row_is_rounded_on_a_scale_of_its_own(target: Target, opset: int):
    model = mlp(opset=opset)
    result = without_data(model, target)
    x = outliers(2, 7, 24)
    w0, w1 = (floats_of(result.weights[use]) for use in sorted(result.weights))
    hidden = np.maximum(rounded_rows(x) @ w0 + weights(SHAPES)["b0"], 0.0).astype(np.float32)
    wanted = rounded_rows(hidden) @ w1 + x
    (got,) = run_ort(write(result), {"x": x}, keeps_pairs=True)
    largest = np.abs(wanted).max(-1, keepdims=True)
    # A number that lies between two codes may become either: 1/127 of a row's largest, in few of them.
    assert np.abs(got - wanted).max() <= np.max(largest) / 100
    assert np.mean(np.abs(got - wanted) > 1e-5 * largest + 1e-12) < 0.02
    assert np.isfinite(got).all(), "a row of zeros has a scale, too"


def test_every_runtime_computes_the_same_with_its_integer_kernels():
    x = outliers(2, 7, 24)
    (floats,) = run_ort(mlp().graph, {"x": x})
    for target, run in ((ORT, run_ort), (target_named("openvino"), run_openvino)):
        (got,) = run(write(without_data(mlp(), target)), {"x": x})
        assert min(sqnr_db(floats[:, row], got[:, row]) for row in range(1, 7)) > 30.0, target.name


def test_onnxruntime_multiplies_codes(tmp_path):
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.optimized_model_filepath = str(tmp_path / "optimized.onnx")
    options.log_severity_level = 4
    text = ir.to_proto(write(without_data(mlp(), ORT))).SerializeToString()
    onnxruntime.InferenceSession(text, options, providers=["CPUExecutionProvider"])
    made = ir.load(tmp_path / "optimized.onnx").graph
    assert [node.op_type for node in made].count("MatMulIntegerToFloat") == 2


def test_products_of_one_value_share_its_scales():
    text = """net (float[N,8] x) => (float[N,4] a, float[N,4] b) {
      a = MatMul(x, w0)
      b = Gemm(x, w1, c)
    }"""
    shapes = {"w0": (8, 4), "w1": (8, 4), "c": (4,)}
    result = without_data(net(text, weights(shapes)), ORT)
    graph = write(result)
    assert len(nodes(graph, "ReduceMax")) == len(nodes(graph, "QuantizeLinear")) == 1
    x = outliers(9, 8)
    for got, wanted in zip(run_ort(graph, {"x": x}), run_ort(result.model.graph, {"x": x}), strict=True):
        assert sqnr_db(wanted, got) > 35.0


def test_the_float_graph_is_left_as_it_was_and_names_stay():
    result = without_data(mlp(), CUDA)
    before = ir.to_proto(result.graph).SerializeToString()
    spelled = spell_per_token(result)
    assert ir.to_proto(result.graph).SerializeToString() == before
    products = {node.name for node in nodes(spelled.graph, "MatMul")}
    assert (
        products == {use[0] for use in result.placement.per_token} == {u[0] for u in spelled.placement.uses}
    )
    assert {float(grid.scale) for grid in spelled.activations.values()} == {1.0}
    assert spell_per_token(spelled) is spelled


def test_fp8_reaches_to_its_largest_number():
    spelled = spell_per_token(without_data(mlp(), CUDA_FP8))
    assert constant(spelled.graph.graph.initializers["row_unit"]) == pytest.approx(1 / 448)


def test_what_is_no_product_with_a_weight_stays_static_and_needs_data():
    text = """net (float[N,3,8,8] x) => (float[N,5] y) {
      c = Conv<pads=[1,1,1,1]>(x, w0, b0)
      r = Relu(c)
      m = GlobalAveragePool(r)
      f = Flatten(m)
      y = Gemm<transB=1>(f, w1, b1)
    }"""
    model = net(text, weights({"w0": (8, 3, 3, 3), "b0": (8,), "w1": (5, 8), "b1": (5,)}))
    x = samples(4, 3, 8, 8)
    for target in TARGETS:
        result = quantized(model, target, {"x": x}, activations="per-token")
        assert result.placement.values and len(result.placement.per_token) == 1
        (wanted,), (got,) = run_ort(model.graph, {"x": x}), run_ort(write(result), {"x": x})
        assert sqnr_db(wanted, got) > 25.0, target.name
        float_conv = without_data(model, target)
        reasons = {row.op_type: (row.is_int8, row.reason) for row in float_conv.placement.decisions}
        assert reasons["Gemm"][0]
        assert any(note.startswith("float, for want of calibration data: ") for note in float_conv.notes)
        assert not reasons["Conv"][0] and reasons["Conv"][1].endswith("calibration data: there are none")


def test_levels_and_exclusions_hold():
    first = nodes(mlp().graph, "MatMul")[0].name
    result = without_data(mlp(), ORT, QuantizeConfig(activations="per-token", exclude=(first,)))
    assert len(result.placement.per_token) == len(result.weights) == 1
    assert len(nodes(write(result), "ReduceMax")) == 1


def test_nodes_go_back_to_floats_without_scales():
    model, options = mlp(), CalibrationConfig()
    reference = sample_reference(model, None, CONFIG, options)
    fitted = fit(model, None, CUDA, reference, config=CONFIG, calibration=options)
    assert fitted.method == ROW_SCALES
    first = nodes(model.graph, "MatMul")[0].name or ""
    mixed = keep_float(fitted, {first: "asked for"}, CONFIG).model
    assert (first, 0) not in mixed.placement.per_token and len(mixed.placement.per_token) == 1
    assert len(nodes(write(mixed), "ReduceMax")) == 1


def test_the_record_of_an_engine_tells_it():
    result = without_data(mlp(), CUDA)
    again = from_record(result.model, record_of(result), CUDA)
    assert again.placement.per_token == result.placement.per_token
    assert again.digest == result.digest
    static = replace(result, placement=replace(result.placement, per_token=frozenset()))
    assert static.digest != result.digest


def test_static_grids_want_data_still():
    with pytest.raises(DataError, match="range"):
        without_data(mlp(), ORT, QuantizeConfig())


@pytest.mark.parametrize(
    "options", [{"activations": "rows"}, {"activations": "per-token", "weights": "int4"}]
)
def test_what_does_not_go_together_is_told(options):
    with pytest.raises(UsageError, match="activation"):
        QuantizeConfig(**options)


def test_the_halves_of_a_gate_are_scaled_one_by_one():
    text = """net (float[N,16] x) => (float[N,12] y) {
      p = MatMul(x, w0)
      a, b = Split<axis=-1, num_outputs=2>(p)
      s = Sigmoid(a)
      g = Mul(a, s)
      y = Mul(g, b)
    }"""
    model = net(text, weights({"w0": (16, 24)}), opset=18)
    result = without_data(model, CUDA)
    x = outliers(7, 16)
    (wanted,), (got,) = run_ort(model.graph, {"x": x}), run_ort(write(result), {"x": x})
    assert sqnr_db(wanted, got) > 30.0
    (region,) = (r for r in partition(spell_per_token(result).graph).regions if isinstance(r.formula, Gemm))
    assert isinstance(region.formula, Gemm) and region.formula.is_gated
    assert [operand.kind for operand in region.formula.epilogue.operands].count("tensor") == 1
