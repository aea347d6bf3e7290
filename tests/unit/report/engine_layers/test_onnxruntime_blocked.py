# SPDX-License-Identifier: Apache-2.0
"""Nodes of layers that ONNX Runtime blocks by channels, around which it renames values."""

import numpy as np
import pytest

from quantrt.plan.plan import Layer
from quantrt.report.engine_layers.of_engine import engine_layers
from tests.plans import make_plan

NET = """net (float[N,16,8,8] x) => (float[N,16,8,8] y) {
    [conv1] a = Conv <pads = [1,1,1,1]> (x, w1)
    [relu1] b = Relu (a)
    [conv2] c = Conv <pads = [1,1,1,1]> (b, w2)
    [relu2] d = Relu (c)
    [pool] y = MaxPool <kernel_shape = [3,3], pads = [1,1,1,1]> (d)
}"""
NODES = (("conv1", "Conv"), ("relu1", "Relu"), ("conv2", "Conv"), ("relu2", "Relu"), ("pool", "MaxPool"))


def test_every_node_is_of_the_layer_that_computes_it(rng: np.random.Generator):
    weights = {name: rng.standard_normal((16, 16, 3, 3)).astype(np.float32) for name in ("w1", "w2")}
    rows = tuple(Layer(name=name, op_type=kind, precision="fp32", reason="") for name, kind in NODES)
    layers = engine_layers(make_plan("onnxruntime", NET, weights, layers=rows), shapes={"x": (1, 16, 8, 8)})
    if not any(layer.name.endswith("_nchwc") for layer in layers):
        pytest.skip("ONNX Runtime does not block channels on this CPU")
    found = [layer.nodes for layer in layers if layer.nodes]
    assert found == [("conv1", "relu1"), ("conv2", "relu2"), ("pool",)]
