# SPDX-License-Identifier: Apache-2.0
"""What the kernels of a GPU compute behind a convolution, and what they therefore store as codes."""

import numpy as np
import onnx_ir as ir
import pytest

from quantrt.quantize.patterns.behind_conv import before_activation, is_mean_of_images
from quantrt.quantize.placement.placement import place
from quantrt.quantize.targets.cuda import CUDA
from quantrt.quantize.targets.openvino import OPENVINO
from quantrt.quantize.targets.tensorrt import TENSORRT
from tests.nets import int8_nodes, net, weights

ACTIVATIONS = {
    "Relu": "r = Relu(c)",
    "SiLU": "s = Sigmoid(c) r = Mul(c, s)",
    "SiLU, turned": "s = Sigmoid(c) r = Mul(s, c)",
    "HardSwish": "r = HardSwish(c)",
    "HardSwish, spelled out": "s = HardSigmoid(c) r = Mul(c, s)",
    "Mish": "p = Softplus(c) t = Tanh(p) r = Mul(c, t)",
    "none": "r = Identity(c)",
}


def graph_of(body: str) -> ir.Model:
    """A net on maps [N, 4, 6, 6] with convolutions w and v."""
    text = f"net (float[N,4,6,6] x) => (float[N,4,A,B] y) {{ {body} }}"
    arrays = weights({name: (4, 4, 1, 1) for name in "wv" if f", {name})" in body})
    return net(text, arrays, opset=18).graph


def value(graph: ir.Model, name: str) -> ir.Value:
    return next(x for node in graph.graph for x in node.outputs if x.name == name)


@pytest.mark.parametrize("activation", ACTIVATIONS.values(), ids=ACTIVATIONS.keys())
def test_of_a_residual_sum_behind_an_activation_the_skip_branch_is_read_as_codes(activation: str):
    graph = graph_of(f"c = Conv(x, w) {activation} a = Add(x, r) y = Conv(a, v)")
    uses = place(graph, CUDA).uses
    (add,) = (node.name for node in graph.graph if node.op_type == "Add")
    assert (add, 0) in uses and (add, 1) not in uses


@pytest.mark.parametrize("target", [OPENVINO, TENSORRT], ids=lambda target: target.name)
def test_other_kernels_do_not_reach_so_far(target):
    graph = graph_of(f"c = Conv(x, w) {ACTIVATIONS['SiLU']} a = Add(x, r) y = Conv(a, v)")
    assert not any(name.startswith("Add") for name in int8_nodes(place(graph, target)))


def test_what_is_no_activation_stops_the_way_back():
    graph = graph_of("c = Conv(x, w) m = Mul(c, x) y = Relu(m)")
    assert before_activation(value(graph, "y")) is value(graph, "m")
    squared = graph_of("c = Conv(x, w) y = Mul(c, c)")
    assert before_activation(value(squared, "y")) is value(squared, "y")
    assert before_activation(None) is None


MEANS = {
    "GlobalAveragePool": "m = GlobalAveragePool(r)",
    "ReduceMean over pixels": "m = ReduceMean<keepdims=1>(r, pixels)",
    "from the end": "m = ReduceMean<keepdims=1>(r, last)",
}


def mean_net(mean: str, rest: str = "y = Conv(m, v)") -> ir.Model:
    body = f"c = Conv(x, w) r = Relu(c) {mean} {rest}"
    arrays = weights({name: (4, 4, 1, 1) for name in "wv" if f", {name})" in body})
    axes = {"pixels": [2, 3], "last": [-1, -2], "channels": [1], "rows": [3]}
    arrays |= {name: np.array(x, np.int64) for name, x in axes.items() if f", {name})" in body}
    return net(f"net (float[N,4,6,6] x) => (float[N,4,A,B] y) {{ {body} }}", arrays, opset=18).graph


def reads_codes(graph: ir.Model) -> bool:
    (mean,) = (node.name for node in graph.graph if "Mean" in node.op_type or "Average" in node.op_type)
    return (mean, 0) in place(graph, CUDA).uses


@pytest.mark.parametrize("mean", MEANS.values(), ids=MEANS.keys())
def test_a_mean_of_what_a_convolution_makes_for_it_alone_reads_codes(mean: str):
    assert reads_codes(mean_net(mean))
    summed = mean.replace("(r", "(a")
    assert reads_codes(mean_net(f"a = Add(x, r) {summed}"))


@pytest.mark.parametrize("axes", ["channels", "rows"])
def test_a_mean_over_other_axes_is_none_of_images(axes: str):
    graph = mean_net(f"m = ReduceMean<keepdims=1>(r, {axes})", "y = Relu(m)")
    (mean,) = (node for node in graph.graph if node.op_type == "ReduceMean")
    assert not is_mean_of_images(mean)
    assert not reads_codes(graph)


def test_a_mean_beside_another_reader_of_floats_reads_floats():
    """As in a squeeze-and-excite block: rounding the map that is gated would cost accuracy."""
    graph = mean_net("m = GlobalAveragePool(r)", "g = Sigmoid(m) e = Mul(r, g) y = Conv(e, v)")
    assert not reads_codes(graph)
