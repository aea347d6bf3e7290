# SPDX-License-Identifier: Apache-2.0
"""Small programs for the CUDA executor, made from ONNX text, and an engine of one."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import onnx.parser

from quantrt.ir.tensor_spec import TensorSpec
from quantrt.kernels.kernel import CompiledKernel, KernelSpec
from quantrt.kernels.kernel_text import kernel_key
from quantrt.plan.plan import Plan
from quantrt.plan.program import Program, Step
from quantrt.plan.program_json import program_to_model
from tests.plans import make_plan

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


GPU = {
    "name": "NVIDIA Test 9",
    "memory_bytes": 80 * 10**9,
    "driver": "570.1",
    "compute_capability": "9.0",
}

KERNEL = CompiledKernel(
    spec=KernelSpec(
        family="gemm",
        function="gemm",
        signature=(("x_ptr", "*fp16"),),
        aligned=frozenset({"x_ptr"}),
        constants=(("BLOCK", 64),),
        num_warps=4,
        num_stages=2,
        is_exact=False,
    ),
    symbol="gemm",
    cubins={80: bytes(700), 90: bytes(1300)},
    shared_bytes={80: 0, 90: 0},
)


def region_note(**fields: Any) -> dict[str, Any]:
    """A row of Program.notes["regions"], of a region that nothing is known of but `fields`."""
    names = ("formula", "product", "tactic", "median_us", "origin", "key")
    return {**dict.fromkeys(names), "nodes": [], "reads": "x", "codes": "", **fields}


NOTES = {
    "regions": {
        "region of pool": region_note(
            formula="Conv",
            nodes=["pool", "relu"],
            is_int8=True,
            tactic="triton: conv2d 64x32",
            median_us=12.34,
            origin="timed",
        ),
        "region of shape": region_note(formula="host"),
        "region of flat": region_note(formula="view"),
        "region of soft": region_note(
            formula="Rows", nodes=["soft"], tactic="triton: rows 1x256", median_us=2.0, origin="cached"
        ),
    },
    "mismatches": [["epilogue", "its result is used twice", "pool"]],
    "compile_s": 1.5,
    "timing_s": 2.5,
    "tuning": ["2 kernels were not compiled: the time was over"],
}


def cuda_plan(**fields: Any) -> Plan:
    """A plan for a GPU with notes and a kernel, as a build makes it; its kernel is no machine code."""
    program = pooled_program("float16", kernels={kernel_key(KERNEL.spec): KERNEL}, notes=NOTES)
    values = {
        "model": program_to_model(program),
        "inputs": (TensorSpec("x", "float16", ("N", "C", "H", "W")),),
        "outputs": (TensorSpec("y", "float32", ("N", "K")),),
        "precision": "int8",
        "device": {"cpu": "A", "available_cores": 4, "gpu": [GPU], "libraries": {"torch": "2.0"}},
        "report": {},
    }
    return make_plan("onnxruntime", **{**values, **fields})
