# SPDX-License-Identifier: Apache-2.0
"""A U-Net in small, as exporters write it, by our kernels in Triton's interpreter: nothing node by node."""

import numpy as np
import pytest

from quantrt.config import CudaConfig
from quantrt.gpu import gpu_named
from quantrt.model.model import Model
from quantrt.plan.program import Program
from quantrt.plan.program_json import program_from_model
from quantrt.quantize.quantized_model import QuantizedModel
from quantrt.quantize.targets.cuda import CUDA
from quantrt.reference.metrics import sqnr_db
from quantrt.runtime.cuda.executor import CudaExecutor
from quantrt.tactics.cuda.lower import CudaLowering
from tests.nets import net, quantized, run_ort, samples, weights

OWN = CudaConfig(builder_optimization_level=0, exclude_tactic_sources=("torch", "cudnn", "cublaslt"))
INPUTS = {"x": samples(2, 4, 8, 8), "e": samples(2, 16, seed=2)}

UNET = """net (float[N,4,H,W] x, float[N,16] e) => (float[N,4,A,B] y) {
  c0 = Conv<pads=[1,1,1,1]>(x, w0, b16)
  r0 = Reshape(c0, groups)
  i0 = InstanceNormalization(r0, ones, zeros)
  shape0 = Shape(c0)
  g0 = Reshape(i0, shape0)
  m0 = Mul(g0, gamma)
  n0 = Add(m0, beta)
  s0 = Sigmoid(n0)
  a0 = Mul(n0, s0)
  c1 = Conv<pads=[1,1,1,1]>(a0, w1, b16)
  l = Gemm(e, w2, b16)
  t = Unsqueeze(l, axes)
  h1 = Add(c1, t)
  n1 = GroupNormalization<num_groups=4>(h1, scale, offset)
  s1 = Sigmoid(n1)
  a1 = Mul(n1, s1)
  c2 = Conv<pads=[1,1,1,1]>(a1, w1, b16)
  skip = Add(c0, c2)
  down = Conv<pads=[1,1,1,1], strides=[2,2]>(skip, w1, b16)
  n2 = InstanceNormalization(down, scale, offset)
  a2 = LeakyRelu(n2)
  near = Resize<coordinate_transformation_mode="asymmetric", nearest_mode="floor">(a2, , twice)
  c3 = Conv<pads=[1,1,1,1]>(near, w1, b16)
  up = ConvTranspose<strides=[2,2]>(down, w3, b16)
  a3 = Relu(up)
  both = Concat<axis=1>(c3, a3)
  c4 = Conv<pads=[1,1,1,1]>(both, w4, b4)
  y = Resize<mode="linear">(c4, , twice)
}"""

SHAPES = {
    "w0": (16, 4, 3, 3),
    "w1": (16, 16, 3, 3),
    "w2": (16, 16),
    "w3": (16, 16, 2, 2),
    "w4": (4, 32, 3, 3),
    "b16": (16,),
    "b4": (4,),
    "gamma": (16, 1, 1),
    "beta": (16, 1, 1),
    "scale": (16,),
    "offset": (16,),
}
FIXED = {
    "groups": np.array([0, 4, -1], np.int64),
    "axes": np.array([2, 3], np.int64),
    "ones": np.ones(4, np.float32),
    "zeros": np.zeros(4, np.float32),
    "twice": np.array([1, 1, 2, 2], np.float32),
}


@pytest.fixture(scope="module")
def unet() -> Model:
    return net(UNET, {**weights(SHAPES), **FIXED}, opset=21)


def program_of(model: Model, codes: QuantizedModel | None) -> Program:
    lowering = CudaLowering(model, OWN, INPUTS, gpu=gpu_named("h200"), device="cpu")
    return program_from_model(lowering.lower(codes, "fp16")[0])


def run(program: Program, model: Model, inputs=INPUTS) -> np.ndarray:
    executor = CudaExecutor(program, model.inputs, model.outputs, device="cpu")
    (y,) = executor.run(inputs).values()
    executor.close()
    return y


def runners(program: Program) -> set[str]:
    return {step.runner for step in program.steps}


def test_in_float16(unet: Model):
    program = program_of(unet, None)
    assert runners(program) >= {"group_norm", "repeat_pixels", "spread", "conv2d"}
    assert "nodes" not in runners(program)
    (want,) = run_ort(unet.graph, INPUTS)
    assert sqnr_db(want, run(program, unet)) > 50
    other = {"x": samples(1, 4, 6, 10, seed=5), "e": samples(1, 16, seed=6)}
    (want,) = run_ort(unet.graph, other)
    assert sqnr_db(want, run(program, unet, other)) > 50


def test_in_int8(unet: Model):
    codes = quantized(unet, CUDA, INPUTS)
    program = program_of(unet, codes)
    assert runners(program) >= {"group_norm", "repeat_pixels", "spread", "conv2d"}
    norms = [step for step in program.steps if step.runner == "group_norm"]
    assert any("int8" in step.options["outputs"] for step in norms)
    (want,) = run_ort(unet.graph, INPUTS)
    assert sqnr_db(want, run(program, unet)) > 20
