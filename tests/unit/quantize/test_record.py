# SPDX-License-Identifier: Apache-2.0
"""A quantized model from its record and its float model: the same codes, grids and biases."""

import json
from dataclasses import replace

import numpy as np
import onnx_ir as ir
import pytest

from quantrt.config import QuantizeConfig
from quantrt.errors import ModelError
from quantrt.ir.edit import constant_of
from quantrt.quantize.algorithms.equalization import scale_channels
from quantrt.quantize.algorithms.smoothing import Smoothing, smooth
from quantrt.quantize.fit.fit import Fitted
from quantrt.quantize.mixed import keep_float
from quantrt.quantize.qdq.write import write
from quantrt.quantize.record import from_record, record_of
from quantrt.quantize.targets.cuda import CUDA
from tests.nets import net, quantized, resnet, run_ort, samples, weights

X = {"x": samples(6, 3, 16, 16)}


def test_a_record_and_the_float_model_give_the_quantized_model():
    made = quantized(resnet(), CUDA, X)
    record = json.loads(json.dumps(record_of(made)))
    again = from_record(resnet(), record, CUDA)
    assert again.placement.uses == made.placement.uses
    for use, tensor in made.weights.items():
        np.testing.assert_array_equal(again.weights[use].codes, tensor.codes)
    for name, grid in again.activations.items():
        assert grid.scale == made.activations[name].scale
    (want,), (got,) = run_ort(write(made), X), run_ort(write(again), X)
    np.testing.assert_array_equal(got, want)
    (plain,) = run_ort(write(quantized(resnet(), CUDA, X, bias_correction=False)), X)
    assert not np.array_equal(plain, want), "biases are in the record"


def test_equalized_channels_are_in_the_record():
    model = resnet()
    names = [node.name or "" for node in model.graph.graph if node.op_type == "Conv"]
    weight = constant_of(model.graph.graph.node(names[0]).inputs[1])
    scales = {names[0]: np.linspace(0.5, 2, len(weight), dtype=np.float32)}
    twin = replace(model, graph=scale_channels(model.graph, scales))
    made = replace(quantized(twin, CUDA, X), model=model, channel_scales=scales)
    again = from_record(model, json.loads(json.dumps(record_of(made))), CUDA)
    (want,), (got,) = run_ort(write(made), X), run_ort(write(again), X)
    np.testing.assert_array_equal(got, want)


def test_equalized_channels_are_in_the_record_of_a_mixed_model():
    model = resnet()
    first, second, *_ = (node.name or "" for node in model.graph.graph if node.op_type == "Conv")
    weight = constant_of(model.graph.graph.node(first).inputs[1])
    scales = {first: np.linspace(0.5, 2, len(weight), dtype=np.float32)}
    twin = replace(model, graph=scale_channels(model.graph, scales))
    whole = replace(quantized(twin, CUDA, X, bias_correction=False), model=model, channel_scales=scales)
    fitted = Fitted(whole, "auto", {}, floats=twin.graph)
    made = keep_float(fitted, {second: "kept float"}, QuantizeConfig()).model
    assert not any(row.is_int8 for row in made.placement.decisions if row.node == second)
    again = from_record(model, json.loads(json.dumps(record_of(made))), CUDA)
    (want,), (got,) = run_ort(write(made), X), run_ort(write(again), X)
    np.testing.assert_array_equal(got, want)


def test_smoothed_activations_are_in_the_record():
    model = net(
        "net (float[N,16] x) => (float[N,5] y) { t = Tanh(x) y = MatMul(t, w) }", weights({"w": (16, 5)})
    )
    smoothing = Smoothing(multiplied={"t": np.linspace(0.5, 2, 16, dtype=np.float32)})
    twin = replace(model, graph=smooth(model.graph, smoothing))
    x = {"x": samples(6, 16)}
    made = replace(quantized(twin, CUDA, x), model=model, multiplied=smoothing.multiplied)
    again = from_record(model, json.loads(json.dumps(record_of(made))), CUDA)
    (want,), (got,) = run_ort(write(made), x), run_ort(write(again), x)
    np.testing.assert_array_equal(got, want)


def test_a_record_is_small():
    made = quantized(resnet(), CUDA, X)
    weights_bytes = sum(tensor.codes.nbytes for tensor in made.weights.values())
    assert len(json.dumps(record_of(made))) < weights_bytes


@pytest.mark.parametrize(
    "damage",
    [
        {"uses": [["Conv_0", 0]]},
        {"activations": {"x": [1.0, 0, "int9", -128, 127]}},
        {"biases": {"Conv_0": "not base64!"}},
        {"biases": {"nobody": ""}},
        {"weights": [["nobody", 1, 0]]},
        {"channel_scales": {"nobody": ""}},
        {"multiplied": {"nobody": ""}},
        {"uses": None},
    ],
)
def test_a_damaged_record_is_refused(damage: dict):
    record = {**record_of(quantized(resnet(), CUDA, X)), **damage}
    with pytest.raises(ModelError):
        from_record(resnet(), record, CUDA)


def test_a_record_of_another_model_is_refused():
    record = record_of(quantized(resnet(), CUDA, X))
    other = resnet()
    graph: ir.Model = other.graph
    for node in graph.graph:
        node.name = f"other_{node.name}"
    with pytest.raises(ModelError, match="no layer"):
        from_record(other, record, CUDA)
