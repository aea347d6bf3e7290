# SPDX-License-Identifier: Apache-2.0
"""A block of EfficientViT by our kernels in Triton's interpreter: groups of channels, linear attention."""

import numpy as np
import pytest

from quantrt.config import CudaConfig
from quantrt.gpu import gpu_named
from quantrt.model.for_gpu import for_gpu
from quantrt.model.model import Model
from quantrt.plan.program import Program
from quantrt.plan.program_json import program_from_model
from quantrt.quantize.quantized_model import QuantizedModel
from quantrt.quantize.targets.cuda import CUDA
from quantrt.reference.metrics import sqnr_db
from quantrt.runtime.cuda.executor import CudaExecutor
from quantrt.tactics.cuda.lower import CudaLowering
from tests.linear_attention import CONSTANTS, linear_nodes
from tests.nets import net, quantized, run_ort, samples, weights

OWN = CudaConfig(builder_optimization_level=0, exclude_tactic_sources=("torch", "cudnn", "cublaslt"))
INPUTS = {"x": samples(2, 16, 6, 6)}

BLOCK = f"""block (float[N,16,6,6] x) => (float[N,16,6,6] y) {{
  qkv = Conv(x, w0, b48)
  deep = Conv<group=48, pads=[2,2,2,2]>(qkv, depth5, b48)
  wider = Conv<group=6>(deep, w1, b48)
  scales = Concat<axis=1>(qkv, wider)
  r = Reshape(scales, heads){linear_nodes("r", "a")}  at = Transpose<perm=[0,1,3,2]>(a)
  image = Reshape(at, channels)
  o = Conv(image, w2, b16)
  y = Add(o, x)
}}"""
SHAPES = {
    "w0": (48, 16, 1, 1),
    "w1": (48, 8, 1, 1),
    "w2": (16, 32, 1, 1),
    "depth5": (48, 1, 5, 5),
    "b48": (48,),
    "b16": (16,),
}
FIXED = {
    **CONSTANTS,
    "heads": np.array([-1, 4, 24, 36], np.int64),
    "channels": np.array([-1, 32, 6, 6], np.int64),
}


@pytest.fixture(scope="module")
def block() -> Model:
    return for_gpu(net(BLOCK, {**weights(SHAPES), **FIXED}, opset=18))


@pytest.mark.parametrize("is_int8", [False, True], ids=["fp16", "int8"])
def test_a_block_is_a_handful_of_kernels(block: Model, is_int8: bool):
    codes: QuantizedModel | None = quantized(block, CUDA, INPUTS) if is_int8 else None
    lowering = CudaLowering(block, OWN, INPUTS, gpu=gpu_named("h200"), device="cpu")
    program = program_from_model(lowering.lower(codes, "fp16")[0])
    runners = [step.runner for step in program.steps if step.runner not in ("view", "rows")]
    # As halves the depthwise convolution reads a part itself, and knows no gaps; its codes are made apart.
    join = "joined" if is_int8 else "concat"
    assert runners == ["conv2d", "depthwise_patches", "conv2d", join, "linear_attention", "conv2d"]
    conversions = [step.region for step in program.steps if step.runner == "rows"]
    assert conversions == (["convert x#int8", "convert a#int8"] if is_int8 else ["convert x#float16"])
    outputs = [run(block, steps) for steps in (program, lowering.reference(codes, "fp16"))]
    lowering.close()
    own, reference = outputs
    assert sqnr_db(reference, own) > 45
    (want,) = run_ort(block.graph, INPUTS)
    assert sqnr_db(want, own) > (25 if is_int8 else 60)


def run(model: Model, program: Program) -> np.ndarray:
    executor = CudaExecutor(program, model.inputs, model.outputs, device="cpu")
    try:
        return executor.run(INPUTS)["y"]
    finally:
        executor.close()
