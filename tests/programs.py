# SPDX-License-Identifier: Apache-2.0
"""Small programs for the CUDA executor, made from ONNX text."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import onnx.parser

from quantrt.plan.program import Program, Step

OPSET = 21


def nodes_of(text: str, weights: Mapping[str, np.ndarray] | None = None, opset: int = OPSET) -> bytes:
    """The protobuf of ONNX text such as `g (float[N] x) => (float[N] y) { [a] y = Relu(x) }`."""
    model = onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["" : {opset}]> {text}')
    for name, array in (weights or {}).items():
        model.graph.initializer.append(onnx.numpy_helper.from_array(array, name))
    return bytes(model.SerializeToString())


def node_step(
    runner: str, names: Sequence[str], inputs: Sequence[str], outputs: Sequence[str], /, **more: Any
):
    """A step of one of the runners of ONNX nodes; fields of Step or options by keyword."""
    fields = {name: more.pop(name) for name in ("weights", "is_host", "reads_values") if name in more}
    options = {"nodes": list(names), **more}
    return Step(runner, "region of " + names[0], tuple(inputs), tuple(outputs), options, **fields)


POOLED = """pooled (float[N, C, H, W] x) => (float[N, K] y) {
    [pool] p = MaxPool <kernel_shape = [2, 2], strides = [2, 2]> (x)
    [shape] s = Shape <start = 0, end = 1> (p)
    [join] target = Concat <axis = 0> (s, rest)
    [flat] f = Reshape (p, target)
    [soft] y = Softmax <axis = -1> (f)
}"""


def pooled_program(dtype: str = "float32", **fields: Any) -> Program:
    """A pool, a shape computed on the host, a view, and a softmax."""
    steps = (
        node_step("nodes", ["pool"], ["x"], ["p"], compute="float32", outputs=[dtype]),
        node_step("host", ["shape", "join"], ["p"], ["target"], is_host=True),
        node_step("view", ["flat"], ["p", "target"], ["f"]),
        node_step("nodes", ["soft"], ["f"], ["y"], compute="float32", outputs=[dtype]),
    )
    values: dict[str, Any] = {
        "inputs": (("x", dtype),),
        "outputs": (("y", "y", "float32"),),
        "steps": steps,
        "weights": {},
        "kernels": {},
        "nodes": nodes_of(POOLED, {"rest": np.array([-1], np.int64)}),
    }
    return Program(**{**values, **fields})


def pooled_reference(x: np.ndarray) -> np.ndarray:
    """What the program computes, float64, for even heights and widths."""
    n, c, h, w = x.shape
    pooled = x.astype(np.float64).reshape(n, c, h // 2, 2, w // 2, 2).max((3, 5)).reshape(n, -1)
    raised = np.exp(pooled - pooled.max(-1, keepdims=True))
    return raised / raised.sum(-1, keepdims=True)
