# SPDX-License-Identifier: Apache-2.0
"""Weights in 4 bits run in ONNX Runtime as their codes say; what has no such form stays, and is said."""

import numpy as np
import onnx
import onnx_ir as ir
import pytest

from quantrt.config import QuantizeConfig
from quantrt.errors import ModelError, UsageError
from quantrt.ir.edit import is_operator
from quantrt.quantize.lint.tensorrt import tensorrt_findings
from quantrt.quantize.weight_only import quantize_weights
from quantrt.reference.metrics import sqnr_db
from tests.nets import net, run_openvino, run_ort, samples, weights

BODY = """net (int64[N,7] ids) => (float[N,7,40] y) {
  e = Gather(table, ids) n = LayerNormalization<axis=-1>(e, gamma, beta) m = MatMul(n, w) t = Tanh(m)
  f = Reshape(t, rows) g = Gemm<transB=1>(f, v, b) y = Reshape(g, back) }"""
SHAPES = {"table": (1100, 96), "gamma": (96,), "beta": (96,), "w": (96, 64), "v": (40, 64), "b": (40,)}
IDS = {"ids": np.random.default_rng(1).integers(0, 1100, (16, 7))}


def text_net():
    arrays = weights(SHAPES) | {"rows": np.array([-1, 64], np.int64), "back": np.array([-1, 7, 40], np.int64)}
    return net(BODY, arrays)


def stored_bytes(graph) -> int:
    return sum(value.const_value.nbytes for value in graph.graph.initializers.values())


def int4(**options) -> QuantizeConfig:
    return QuantizeConfig(weights="int4", **options)


@pytest.mark.parametrize("group_size", [32, 64])
@pytest.mark.parametrize("rounding", ["nearest", "gptq", "adaround", "awq", "awq+gptq"])
def test_products_and_tables_are_in_4_bits_and_run(rounding: str, group_size: int):
    model = text_net()
    made = quantize_weights(model, [IDS], int4(weight_rounding=rounding, group_size=group_size))
    assert len(made.products) == 2 and len(made.tables) == 1
    assert {node.op_type for node in made.graph.graph} >= {"MatMulNBits", "GatherBlockQuantized"}
    assert stored_bytes(made.graph) < 0.19 * stored_bytes(model.graph)
    (want,), (got,) = run_ort(model.graph, IDS), run_ort(made.graph, IDS)
    assert got.shape == want.shape and 13 < sqnr_db(want, got) < 60
    assert [output.name for output in made.graph.graph.outputs] == ["y"]


@pytest.mark.parametrize("rounding", ["nearest", "gptq"])
def test_the_same_codes_are_written_in_onnxs_own_operators(rounding: str):
    """OpenVINO computes in float32; ONNX Runtime makes its own operators of them, activations in int8."""
    model, config = text_net(), int4(weight_rounding=rounding, group_size=32)
    made = quantize_weights(model, [IDS], config, target="openvino")
    assert (len(made.products), len(made.tables)) == (2, 1)
    assert made.graph.opset_imports == {"": 21}
    stored = [value for value in made.graph.graph.initializers.values() if value.dtype == ir.DataType.INT4]
    assert sorted(tuple(value.shape) for value in stored) == [(40, 64), (96, 64), (1100, 96)]
    assert made.graph.graph.initializers.keys().isdisjoint({"table", "w", "v"})
    onnx.checker.check_model(ir.to_proto(made.graph), full_check=True)
    (want,) = run_ort(quantize_weights(model, [IDS], config).graph, IDS)
    (got,) = run_openvino(made.graph, IDS)
    assert sqnr_db(want, got) > 80
    (from_ort,) = run_ort(made.graph, IDS)
    assert sqnr_db(want, from_ort) > 25


@pytest.mark.parametrize("rounding", ["nearest", "gptq", "adaround", "awq+gptq"])
def test_tensorrt_gets_positive_scales_and_keeps_its_tables(rounding: str):
    model, config = text_net(), int4(weight_rounding=rounding, group_size=32)
    made = quantize_weights(model, [IDS], config, target="tensorrt")
    assert (len(made.products), len(made.tables)) == (2, 0)
    assert tensorrt_findings(made.graph.graph) == []
    (want,), (got,) = run_ort(model.graph, IDS), run_openvino(made.graph, IDS)
    assert 14 < sqnr_db(want, got) < 60


def test_a_table_that_two_nodes_read_is_stored_once_in_blocks():
    body = """net (int64[N,7] ids) => (float[N,7,96] y) {
      a = Gather(table, ids) b = Gather(table, ids) y = Add(a, b) }"""
    model = net(body, weights({"table": (1100, 96)}))
    made = quantize_weights(model, [], int4(weight_rounding="nearest", group_size=32), target="openvino")
    assert [node.op_type for node in made.graph.graph].count("DequantizeLinear") == 1


def test_blocks_have_one_size():
    model = net("net (float[N,50] x) => (float[N,6] y) { y = MatMul(x, w) }", weights({"w": (50, 6)}))
    with pytest.raises(ModelError, match="4 bits"):
        quantize_weights(model, [], int4(weight_rounding="nearest", group_size=32), target="openvino")


def test_an_opset_that_cannot_be_raised_is_refused_for_blocks():
    model = text_net()
    model.graph.opset_imports[""] = 12
    with pytest.raises(ModelError, match="4 bits") as caught:
        quantize_weights(model, [], int4(weight_rounding="nearest"), target="openvino")
    assert "opset 12" in caught.value.got and caught.value.hint == "--target ort"


def test_gptq_is_nearer_than_nearest_codes_on_other_samples():
    model, unseen = text_net(), {"ids": np.random.default_rng(7).integers(0, 1100, (64, 7))}
    (want,) = run_ort(model.graph, unseen)
    configs = (int4(weight_rounding=name, exclude_types=("Gather",)) for name in ("nearest", "gptq"))
    nearest, gptq = (run_ort(quantize_weights(model, [IDS], c).graph, unseen)[0] for c in configs)
    assert sqnr_db(want, gptq) > sqnr_db(want, nearest)


def test_what_is_excluded_stays_float():
    model = text_net()
    made = quantize_weights(model, [IDS], int4(exclude_types=("Gather", "Gemm")))
    assert len(made.products) == 1 and not made.tables
    assert any(is_operator(node, "Gemm") for node in made.graph.graph)
    with pytest.raises(UsageError):
        quantize_weights(model, [IDS], int4(exclude=("nobody*",)))


def test_a_weight_of_an_odd_number_of_groups_is_padded():
    model = net("net (float[N,50] x) => (float[N,6] y) { y = MatMul(x, w) }", weights({"w": (50, 6)}))
    x = {"x": samples(8, 50)}
    made = quantize_weights(model, [x], int4(group_size=32))
    (want,), (got,) = run_ort(model.graph, x), run_ort(made.graph, x)
    assert 13 < sqnr_db(want, got) < 60


def test_gptq_wants_samples_and_nearest_does_not():
    model = text_net()
    with pytest.raises(UsageError, match="without samples") as caught:
        quantize_weights(model, [], int4())
    assert "nearest" in caught.value.hint
    assert quantize_weights(model, [], int4(weight_rounding="nearest")).products


def test_samples_that_are_not_finite_are_named():
    model = net("net (float[N,64] x) => (float[N,6] y) { y = MatMul(x, w) }", weights({"w": (64, 6)}))
    x = samples(8, 64)
    x[0, 0] = np.nan
    with pytest.raises(ModelError, match="not finite"):
        quantize_weights(model, [{"x": x}], int4())


def test_a_model_without_such_weights_is_refused():
    model = net(
        "net (float[N,3,8,8] x) => (float[N,4,6,6] y) { y = Conv(x, w) }", weights({"w": (4, 3, 3, 3)})
    )
    with pytest.raises(ModelError, match="4 bits"):
        quantize_weights(model, [{"x": samples(1, 3, 8, 8)}], int4())


@pytest.mark.parametrize(
    "options", [{"weights": "int4", "group_size": 48}, {"group_size": 32}, {"weights": "int3"}]
)
def test_options_that_do_not_go_together_are_refused(options: dict):
    with pytest.raises(UsageError):
        QuantizeConfig(**options)
