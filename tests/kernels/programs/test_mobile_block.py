# SPDX-License-Identifier: Apache-2.0
"""A mobile network in small, whose codes have zero points, by our kernels in Triton's interpreter."""

import numpy as np
import pytest

from quantrt.config import CudaConfig
from quantrt.gpu import gpu_named
from quantrt.model.model import Model
from quantrt.plan.program_json import program_from_model
from quantrt.quantize.qdq.write import write
from quantrt.quantize.targets.cuda import CUDA
from quantrt.reference.metrics import sqnr_db
from quantrt.runtime.cuda.executor import CudaExecutor
from quantrt.tactics.cuda.lower import CudaLowering
from tests.nets import net, quantized, run_ort, samples, weights

H200 = gpu_named("h200")
OWN = CudaConfig(builder_optimization_level=0, exclude_tactic_sources=("torch", "cudnn", "cublaslt"))
INPUTS = {"x": np.abs(samples(2, 3, 13, 11))}

MOBILE = """net (float[N,3,H,W] x) => (float[N,5] y) {
  c0 = Conv<pads=[0,0,1,1], strides=[2,2]>(x, w0, b16)
  r0 = Clip(c0, zero, six)
  d0 = Conv<group=16, pads=[1,1,1,1]>(r0, depth3, b16)
  h0 = HardSwish(d0)
  p0 = Conv(h0, w1, b16)
  e0 = Conv(p0, w1, b16)
  r1 = Relu(e0)
  d1 = Conv<group=16, pads=[2,2,2,2]>(r1, depth5, b16)
  r2 = Relu(d1)
  g = GlobalAveragePool(r2)
  g1 = Conv(g, w1, b16)
  g2 = HardSigmoid(g1)
  m = Mul(r2, g2)
  p1 = Conv(m, w1, b16)
  s = Add(p1, p0)
  r3 = Relu(s)
  a = AveragePool<kernel_shape=[3,3], pads=[1,1,1,1], count_include_pad=1>(r3)
  k = MaxPool<kernel_shape=[3,3], pads=[1,1,1,1]>(r3)
  both = Concat<axis=1>(a, k)
  c2 = Conv(both, w2, b16)
  t = Add(c2, r3)
  r4 = Relu(t)
  mean = GlobalAveragePool(r4)
  flat = Flatten(mean)
  y = Gemm(flat, w3)
}"""
SHAPES = {
    "w0": (16, 3, 3, 3),
    "w1": (16, 16, 1, 1),
    "w2": (16, 32, 1, 1),
    "w3": (16, 5),
    "depth3": (16, 1, 3, 3),
    "depth5": (16, 1, 5, 5),
    "b16": (16,),
}
FIXED = {"zero": np.array(0.0, np.float32), "six": np.array(6.0, np.float32)}


@pytest.fixture(scope="module")
def mobile() -> Model:
    return net(MOBILE, {**weights(SHAPES), **FIXED}, opset=19)


def test_own_kernels_give_what_the_reference_gives(mobile: Model):
    codes = quantized(mobile, CUDA, INPUTS)
    shifted = {name for name, grid in codes.activations.items() if int(grid.zero_point)}
    assert shifted >= {"x", "r0", "h0", "r1", "m", "r3", "r4", "mean"}
    assert any(-128 < int(codes.activations[name].zero_point) < 0 for name in shifted)
    lowering = CudaLowering(mobile, OWN, INPUTS, gpu=H200, device="cpu")
    program = program_from_model(lowering.lower(codes, "fp32")[0])
    runners = [step.runner for step in program.steps]
    assert {"thin_conv2d", "conv2d", "pool"} <= set(runners)
    outputs = []
    for steps in (program, lowering.reference(codes, "fp32")):
        executor = CudaExecutor(steps, mobile.inputs, mobile.outputs, device="cpu")
        outputs.append(executor.run(INPUTS)["y"])
        executor.close()
    own, reference = outputs
    assert np.array_equal(own, reference)
    (want,) = run_ort(write(codes), INPUTS, keeps_pairs=True)
    assert sqnr_db(want, reference) > 40
