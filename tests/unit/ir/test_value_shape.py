# SPDX-License-Identifier: Apache-2.0
"""One value's shape is found along what makes it, and nothing else is touched."""

import numpy as np
import onnx_ir as ir

from quantrt.ir.value_shape import infer_value
from tests.unit.model.check_pass import model_of

WEIGHTS = {"w": np.zeros((8, 6), np.float32), "target": np.array([0, 0, 2, -1])}


def values_of(graph: ir.Model) -> dict[str, ir.Value]:
    return {value.name: value for node in graph.graph for value in node.outputs}


def test_what_makes_a_value_is_inferred():
    body = "m = MatMul(x, w) r = Reshape(m, target) y = Relu(r) z = Exp(x)"
    graph = model_of(body, inputs="float[B,S,8] x", outputs="float[...] y, float[...] z", weights=WEIGHTS)
    values = values_of(graph)
    infer_value(graph, values["r"])
    dims = [dim if isinstance(dim, int) else dim.value for dim in values["r"].shape.dims]
    assert dims[:3] == ["B", "S", 2] and len(dims) == 4
    assert values["r"].dtype == ir.DataType.FLOAT
    assert values["m"].shape[2] == 6
    assert values["z"].shape is None, "not on the way"


def test_behind_an_unknown_operator_nothing_is_known():
    graph = model_of("h = here.Odd(x) r = Relu(h) y = Exp(r)", inputs="float[2,8] x")
    values = values_of(graph)
    infer_value(graph, values["y"])
    assert values["h"].shape is None and values["r"].shape is None and values["y"].shape is None
    values["h"].shape, values["h"].type = ir.Shape([2, 5]), ir.TensorType(ir.DataType.FLOAT)
    infer_value(graph, values["y"])
    assert values["y"].shape == ir.Shape([2, 5])
