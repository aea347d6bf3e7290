# SPDX-License-Identifier: Apache-2.0
"""Quantized models whose activations have any zero points, by our kernels in Triton's interpreter."""

import re
from dataclasses import replace

import numpy as np
import onnx_ir as ir
import onnxruntime
import pytest

from quantrt.config import CudaConfig
from quantrt.gpu import gpu_named
from quantrt.model.model import Model
from quantrt.plan.program import Program
from quantrt.plan.program_json import program_from_model
from quantrt.quantize.explicit.read import read
from quantrt.reference.metrics import sqnr_db
from quantrt.runtime.cuda.executor import CudaExecutor, specs_of
from quantrt.tactics.cuda.lower import CudaLowering
from tests.nets import net, samples

OWN = CudaConfig(builder_optimization_level=0, exclude_tactic_sources=("torch", "cudnn", "cublaslt"))
EQUAL_DB = 100.0
"""Equal codes: what is left are sums of float32 in another order."""

WEIGHTS = {
    "stem": (16, 3, 3, 3),
    "dense": (16, 16, 3, 3),
    "wide": (16, 32, 1, 1),
    "depth": (16, 1, 5, 3),
    "line": (7, 5, 3),
    "deep_line": (6, 7, 4),
    "last": (16, 5),
}
ZERO_POINTS = {"z0": 0, "z7": 7, "z131": 131, "z200": 200, "z255": 255}

IMAGES = """net (float[N,3,9,7] x) => (float[N,5] y) {
  c0 = Conv<pads=[1,1,0,0], strides=[2,2]>(x_d, stem_d, stem_f)
  r0 = Relu(c0)
  c1 = Conv<pads=[2,1,0,1]>(r0_d, dense_d, dense_f)
  c2 = Conv<pads=[2,2,2,2], dilations=[2,2]>(c1_d, dense_d)
  a = Add(c2_d, r0_d)
  r1 = Clip(a, zero, six)
  d = Conv<group=16, pads=[2,1,2,1]>(r1_d, depth_d, depth_f)
  k = MaxPool<kernel_shape=[3,3], pads=[1,1,1,1]>(d_d)
  p = AveragePool<kernel_shape=[3,3], pads=[1,1,1,1], count_include_pad=1>(d_d)
  both = Concat<axis=1>(k, p_d)
  w = Conv(both_d, wide_d)
  m = GlobalAveragePool(w_d)
  f = Flatten(m_d)
  y = Gemm(f, last_d, last_f)
}"""
IMAGE_PAIRS = {
    "x": ("z131", 0.031),
    "r0": ("z0", 0.021),
    "c1": ("z7", 0.043),
    "c2": ("z200", 0.057),
    "r1": ("z0", 0.0235),
    "d": ("z131", 0.019),
    "p": ("z255", 0.0111),
    "both": ("z200", 0.023),
    "w": ("z131", 0.037),
    "m": ("z7", 0.0057),
}

LINES = """net (float[N,5,41] x) => (float[N,6,S] y) {
  c0 = Conv<pads=[1,2], strides=[2]>(x_d, line_d)
  y = Conv<pads=[3,0], dilations=[2]>(c0_d, deep_line_d)
}"""
LINE_PAIRS = {"x": ("z7", 0.019), "c0": ("z200", 0.033)}


def model_of(text: str, pairs: dict[str, tuple[str, float]], rng: np.random.Generator) -> Model:
    """A pair of uint8 behind every value that is named, int8 weights per channel, int32 biases."""
    arrays: dict[str, np.ndarray] = {
        name: np.asarray(number, np.uint8) for name, number in ZERO_POINTS.items()
    }
    arrays |= {"zero": np.zeros((), np.float32), "six": np.asarray(6.0, np.float32)}
    first = []
    for name, shape in WEIGHTS.items():
        axis = 1 if name == "last" else 0
        channels = shape[axis]
        arrays[name] = rng.integers(-127, 128, shape, np.int8)
        size = 0.03 / (arrays[name].size / channels) ** 0.5
        arrays[f"{name}_s"] = ((rng.random(channels) + 0.5) * size).astype(np.float32)
        arrays[f"{name}_b"] = rng.integers(-90, 90, channels, np.int32)
        first.append(f"{name}_d = DequantizeLinear<axis={axis}>({name}, {name}_s)")
        first.append(f"{name}_f = DequantizeLinear<axis=0>({name}_b, {name}_s)")
    first = [line for line in first if f"{line.split()[0]}" in words(text)]
    head, *lines = text.splitlines()
    body = [*first, pair("x", *pairs["x"])]
    for line in lines:
        name = line.split()[0]
        body += [line, pair(name, *pairs[name])] if name in pairs else [line]
    arrays |= {f"{name}_s": np.asarray(scale * np.e / 2.7, np.float32) for name, (_, scale) in pairs.items()}
    whole = "\n".join([head, *body])
    return net(whole, {name: array for name, array in arrays.items() if name in words(whole)}, opset=19)


def pair(name: str, zero: str, scale: float) -> str:
    """QuantizeLinear -> DequantizeLinear."""
    grid = f"{name}_s, {zero}"
    return f"{name}_q = QuantizeLinear({name}, {grid}) {name}_d = DequantizeLinear({name}_q, {grid})"


def words(text: str) -> set[str]:
    return set(re.findall(r"\w+", text))


def run(program: Program, inputs: dict[str, np.ndarray]) -> np.ndarray:
    executor = CudaExecutor(program, *specs_of(program), device="cpu")
    result = executor.run(inputs)["y"]
    executor.close()
    return result


def run_plain(graph: ir.Model, inputs: dict[str, np.ndarray]) -> np.ndarray:
    """Without ONNX Runtime's rewrites, which round elsewhere."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    data = ir.to_proto(graph).SerializeToString()
    return onnxruntime.InferenceSession(data, options, providers=["CPUExecutionProvider"]).run(None, inputs)[
        0
    ]


@pytest.mark.parametrize(
    ("text", "pairs", "shape", "runners"),
    [
        (IMAGES, IMAGE_PAIRS, (2, 3, 9, 7), {"thin_conv2d", "conv2d", "pool", "gemm"}),
        (LINES, LINE_PAIRS, (2, 5, 41), {"conv2d"}),
    ],
    ids=["images", "lines"],
)
def test_every_product_reads_codes_and_our_kernels_give_what_the_model_gives(
    text: str,
    pairs: dict[str, tuple[str, float]],
    shape: tuple[int, ...],
    runners: set[str],
    rng: np.random.Generator,
):
    model = model_of(text, pairs, rng)
    inputs = {"x": 3 * samples(*shape)}
    found = read(model)
    products = [row for row in found.placement.decisions if row.op_type in ("Conv", "Gemm")]
    assert all(row.is_int8 for row in products) and len(products) == text.count("Conv") + text.count("Gemm")
    assert {int(grid.zero_point) % 2 for grid in found.activations.values()} == {0, 1}
    own = replace(model, graph=found.graph)
    lowering = CudaLowering(own, OWN, inputs, gpu=gpu_named("h200"), device="cpu")
    program = program_from_model(lowering.lower(found, "fp32")[0])
    assert runners <= {step.runner for step in program.steps}
    got = run(program, inputs)
    assert len(np.unique(got)) == got.size
    assert np.array_equal(got, run(lowering.reference(found, "fp32"), inputs))
    assert sqnr_db(run_plain(model.graph, inputs), got) > EQUAL_DB
