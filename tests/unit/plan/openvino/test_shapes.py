# SPDX-License-Identifier: Apache-2.0
"""Shapes of reshaped constants."""

from contextlib import closing

import numpy as np
import openvino

from quantrt.plan import lower
from quantrt.plan.lower import lower_to_openvino
from quantrt.plan.openvino.shapes import fold_shapes
from quantrt.plan.plan import ExecOptions
from quantrt.runtime.openvino.executor import OpenVinoExecutor
from tests.nets import resnet, samples


def kinds(graph: bytes) -> list[str]:
    return [kind for kind in ("ShapeOf", "Broadcast", "Concat") if f'type="{kind}"'.encode() in graph]


def test_biases_are_reshaped_by_constants_and_outputs_stay(monkeypatch):
    model, data = resnet(), samples(4, 3, 16, 16)
    folded = lower_to_openvino(model.graph)
    monkeypatch.setattr(lower, "fold_shapes", lambda model: None)
    plain = lower_to_openvino(model.graph)
    assert kinds(plain.graph) == ["ShapeOf", "Broadcast", "Concat"]
    assert kinds(folded.graph) == ["ShapeOf"]  # what is flattened has a free batch
    with (
        closing(OpenVinoExecutor(plain, ExecOptions())) as one,
        closing(OpenVinoExecutor(folded, ExecOptions())) as other,
    ):
        np.testing.assert_array_equal(one.run({"x": data})["y"], other.run({"x": data})["y"])


def test_a_shape_that_depends_on_the_input_stays_computed():
    x = openvino.opset8.parameter([-1, 6], np.float32)
    table = openvino.opset8.constant(np.arange(12, dtype=np.float32))
    sizes = openvino.opset8.shape_of(x)
    made = openvino.opset8.reshape(table, sizes, special_zero=False)
    model = openvino.Model([made], [x])
    fold_shapes(model)
    assert made.input_value(1).get_node().get_type_name() == "ShapeOf"
