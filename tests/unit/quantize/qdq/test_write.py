# SPDX-License-Identifier: Apache-2.0
"""The written graphs are valid ONNX, compute what the quantized edges say, and store what they should."""

from pathlib import Path

import numpy as np
import onnx_ir as ir
import pytest

from quantrt.model.file.save import save_model
from quantrt.quantize.qdq.write import write
from quantrt.quantize.scales.qparams import dequantize, quantize_array
from quantrt.quantize.target import Target
from quantrt.quantize.targets import TARGETS
from quantrt.quantize.targets.onnxruntime import ORT
from quantrt.quantize.targets.openvino import OPENVINO
from quantrt.reference.metrics import sqnr_db
from tests.nets import CONV, constant, net, nodes, quantized, resnet, run_ort, samples, weights

ONE_CONV = weights({"w": (8, 3, 3, 3), "b": (8,)})
all_targets = pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.name)


@all_targets
@pytest.mark.parametrize("opset", [13, 17, 21, 23])
def test_the_written_model_runs_and_is_close_to_the_float_one(target: Target, opset: int):
    model = net(CONV, ONE_CONV, opset=opset)
    inputs = {"x": samples(8, 3, 8, 8)}
    graph = write(quantized(model, target, inputs))
    assert graph.opset_imports[""] == opset
    (wanted,), (got,) = run_ort(model.graph, inputs), run_ort(graph, inputs)
    assert sqnr_db(wanted, got) > 35.0


def test_the_float_graph_is_left_as_it_was():
    model = resnet()
    before = ir.to_proto(model.graph).SerializeToString()
    write(quantized(model, ORT, {"x": samples(4, 3, 16, 16)}))
    assert ir.to_proto(model.graph).SerializeToString() == before


@all_targets
def test_weights_are_int8_initializers_behind_one_dequantize_linear(target: Target):
    result = quantized(resnet(), target, {"x": samples(4, 3, 16, 16)})
    graph = write(result)
    for node in (*nodes(graph, "Conv"), *nodes(graph, "Gemm")):
        dequantizer = node.inputs[1].producer()
        assert dequantizer.op_type == "DequantizeLinear"
        assert constant(dequantizer.inputs[0]).dtype == np.int8
        assert not constant(dequantizer.inputs[2]).any()
        assert constant(dequantizer.inputs[1]).shape == (node.inputs[1].shape[0],)
    assert not [name for name, value in graph.graph.initializers.items() if not value.uses()]
    assert {"w0", "w1", "w2", "w3", "w4"}.isdisjoint(graph.graph.initializers)


@all_targets
def test_an_activation_has_one_pair_of_nodes_however_many_read_it(target: Target):
    result = quantized(resnet(), target, {"x": samples(4, 3, 16, 16)})
    graph = write(result)
    assert len(nodes(graph, "QuantizeLinear")) == len(result.activations)
    assert {node.inputs[0].name for node in nodes(graph, "QuantizeLinear")} == set(result.activations)


def test_the_rounded_value_is_that_of_the_reference_arithmetic():
    text = "net (float[N,8] x) => (float[N,8] y) { y = MatMul(x, w) }"
    model = net(text, {"w": np.eye(8, dtype=np.float32) * 127})
    x = samples(64, 8)
    result = quantized(model, OPENVINO, {"x": x}, bias_correction=False)
    grid = result.activations["x"]
    rounded = dequantize(quantize_array(x, grid), grid)
    (got,) = run_ort(write(result), {"x": x})
    np.testing.assert_allclose(got, rounded * 127, rtol=1e-5)


def test_weights_that_two_nodes_share_are_stored_once():
    text = """net (float[N,4,8,8] x) => (float[N,4,8,8] y) {
    a = Conv<pads=[1,1,1,1]>(x, w) r = Relu(a) y = Conv<pads=[1,1,1,1]>(r, w) }"""
    model = net(text, weights({"w": (4, 4, 3, 3)}))
    for target in TARGETS:
        graph = write(quantized(model, target, {"x": samples(4, 4, 8, 8)}))
        first, second = nodes(graph, "Conv")
        assert first.inputs[1] is second.inputs[1]


def test_shared_weights_with_two_axes_or_two_grids_are_stored_for_each():
    text = """net (float[N,8] x) => (float[N,8] y) {
    a = Gemm<transB=1>(x, w, huge) r = Relu(a) y = Gemm(r, w, b) }"""
    arrays = weights({"w": (8, 8), "b": (8,)}) | {"huge": np.full(8, 1e8, np.float32)}
    model, inputs = net(text, arrays), {"x": samples(16, 8)}
    graph = write(quantized(model, ORT, inputs))
    first, second = nodes(graph, "Gemm")
    assert first.inputs[1] is not second.inputs[1]
    (wanted,), (got,) = run_ort(model.graph, inputs), run_ort(graph, inputs)
    assert sqnr_db(wanted, got) > 20.0


def test_a_constant_that_a_float_node_reads_too_is_kept_for_it():
    text = """net (float[N,4] x) => (float[N,4] y, float[4,4] z) { y = MatMul(x, w) z = Mul(w, s) }"""
    model = net(text, weights({"w": (4, 4), "s": (1,)}))
    graph = write(quantized(model, OPENVINO, {"x": samples(4, 4)}, exclude_types=("Mul",)))
    float_reader = nodes(graph, "Mul")
    assert not float_reader or constant(float_reader[0].inputs[0]).dtype == np.float32


def test_names_that_are_taken_get_underscores_also_where_a_subgraph_has_them():
    text = """net (float[N,4] x, bool c) => (float[N,4] y) {
    x_quantize_output = Exp(x) w_quantized = Neg(x_quantize_output)
    m = MatMul(x, w) s = Add(m, w_quantized)
    i = If(c) <then_branch = yes () => (float[N,4] x_scale) { x_scale = Exp(s) },
               else_branch = no () => (float[N,4] w_dequantize_output) { w_dequantize_output = Neg(s) }>
    y = Add(i, s) }"""
    model = net(text, weights({"w": (4, 4)}))
    inputs = {"x": samples(4, 4), "c": np.array(True)}
    result = quantized_with_condition(model, inputs)
    graph = write(result)
    names = [name for part in graph.graphs() for name in part.initializers]
    names += [value.name for part in graph.graphs() for node in part for value in node.outputs]
    assert len(names) == len(set(names))
    (wanted,), (got,) = run_ort(model.graph, inputs), run_ort(graph, inputs)
    assert sqnr_db(wanted, got) > 30.0


def quantized_with_condition(model, inputs):
    """Quantize a model whose second input has no batch axis: every sample runs alone."""
    from quantrt.calibrate.collect import collect
    from quantrt.calibrate.dataset import open_dataset
    from quantrt.config import CalibrationConfig, QuantizeConfig
    from quantrt.quantize.quantize import observed_values, quantize

    config = CalibrationConfig()
    names = observed_values(model, (OPENVINO,), QuantizeConfig())
    stats = collect(model, names, open_dataset([inputs], model.inputs), config)
    return quantize(model, stats, OPENVINO, QuantizeConfig(), config)


@pytest.mark.parametrize("taken", [True, False])
def test_a_value_that_a_subgraph_captures(taken: bool):
    text = """net (float[N,4,6,6] x, bool c) => (float[N,4,6,6] y) {
    h = Conv<pads=[1,1,1,1]>(x, w) r = Relu(h) g = Conv<pads=[1,1,1,1]>(r, v)
    i = If(c) <then_branch = yes () => (float[N,4,6,6] p) { p = Exp(r) },
               else_branch = no () => (float[N,4,6,6] q) { q = Sqrt(r) }>
    y = Add(g, i) }"""
    model = net(text, weights({"w": (4, 4, 3, 3), "v": (4, 4, 3, 3)}))
    inputs = {"x": samples(2, 4, 6, 6), "c": np.array(taken)}
    graph = write(quantized_with_condition(model, inputs))
    (wanted,), (got,) = run_ort(model.graph, inputs), run_ort(graph, inputs)
    assert sqnr_db(wanted, got) > 25.0


def test_a_loop_whose_body_reads_a_quantized_value():
    text = """net (float[N,4] x) => (float[N,4] y) {
    h = MatMul(x, w)
    t = Loop(three, , h) <body = turn (int64 i, bool go, float[N,4] a) => (bool go2, float[N,4] b)
        { go2 = Identity(go) b = Add(a, x) }>
    y = MatMul(t, v) }"""
    arrays = weights({"w": (4, 4), "v": (4, 4)}) | {"three": np.array(3)}
    model, inputs = net(text, arrays), {"x": samples(16, 4)}
    for target in TARGETS:
        graph = write(quantized(model, target, inputs))
        (wanted,), (got,) = run_ort(model.graph, inputs), run_ort(graph, inputs)
        assert sqnr_db(wanted, got) > 25.0


def test_an_output_that_is_read_as_well_keeps_its_name_and_place():
    text = """net (float[N,3,8,8] x) => (float[N,8,8,8] r, float[N,8,8,8] y) {
    h = Conv<pads=[1,1,1,1]>(x, w, b) r = Relu(h) y = Conv<pads=[1,1,1,1]>(r, v) }"""
    model = net(text, ONE_CONV | weights({"v": (8, 8, 3, 3)}))
    inputs = {"x": samples(4, 3, 8, 8)}
    for target in TARGETS:
        graph = write(quantized(model, target, inputs))
        assert [value.name for value in graph.graph.outputs] == ["r", "y"]
        for wanted, got in zip(run_ort(model.graph, inputs), run_ort(graph, inputs), strict=True):
            assert sqnr_db(wanted, got) > 30.0


def test_an_input_that_is_an_output_too():
    text = "net (float[N,4] x) => (float[N,4] y, float[N,4] x) { y = MatMul(x, w) }"
    model, inputs = net(text, weights({"w": (4, 4)})), {"x": samples(8, 4)}
    for target in TARGETS:
        graph = write(quantized(model, target, inputs))
        _, x = run_ort(graph, inputs)
        np.testing.assert_array_equal(x, inputs["x"])


def test_an_opset_without_axes_gets_one_scale_per_tensor():
    text = "net (float[N,8,6,6] x) => (float[N,8,6,6] y) { h = Conv(x, w, b) y = Hardmax(h) }"
    model = net(text, weights({"w": (8, 8, 1, 1), "b": (8,)}), opset=11)
    assert model.graph.opset_imports[""] == 11
    inputs = {"x": samples(4, 8, 6, 6)}
    for target in TARGETS:
        result = quantized(model, target, inputs)
        assert all(tensor.qparams.axis is None for tensor in result.weights.values())
        graph = write(result)
        assert not any("axis" in node.attributes for node in nodes(graph, "DequantizeLinear"))
        run_ort(graph, inputs)


@all_targets
def test_the_file_of_a_weight_dominated_model_is_a_quarter_of_the_float_one(target: Target, tmp_path: Path):
    text = "net (float[N,512] x) => (float[N,512] y) { h = MatMul(x, w) r = Relu(h) y = MatMul(r, v) }"
    model = net(text, weights({"w": (512, 512), "v": (512, 512)}))
    graph = write(quantized(model, target, {"x": samples(4, 512)}))
    save_model(model.graph, tmp_path / "float.onnx")
    save_model(graph, tmp_path / "int8.onnx")
    ratio = (tmp_path / "int8.onnx").stat().st_size / (tmp_path / "float.onnx").stat().st_size
    assert ratio <= 0.27
