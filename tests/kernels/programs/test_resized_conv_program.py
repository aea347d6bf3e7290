# SPDX-License-Identifier: Apache-2.0
"""A resize and the convolution behind it in an engine, phase by phase, in Triton's interpreter."""

import numpy as np
import pytest

from quantrt.config import CudaConfig
from quantrt.gpu import gpu_named
from quantrt.plan.program_json import program_from_model
from quantrt.quantize.targets.cuda import CUDA
from quantrt.runtime.cuda.executor import CudaExecutor
from quantrt.tactics.cuda.lower import CudaLowering
from tests.nets import net, quantized, run_ort, samples, weights

UP = """net (float[N,16,H,W] x) => (float[N,16,A,B] y) {
  x2 = Resize<coordinate_transformation_mode="asymmetric", nearest_mode="floor">(x, , twice)
  a = Conv<pads=[1,1,1,1]>(x, w, b)
  r = Resize<coordinate_transformation_mode="asymmetric", nearest_mode="floor">(a, , twice)
  c = Conv<pads=[1,1,1,1]>(r, w, b)
  z = Relu(c)
  both = Concat<axis=1>(z, x2)
  y = Conv(both, w1, b)
}"""
X = samples(2, 16, 5, 6)


@pytest.mark.parametrize("precision", ["int8", "fp16"])
def test_an_engine_with_both_as_one(precision, monkeypatch):
    """As one where that is said to be faster; the kernels run in Triton's interpreter."""
    monkeypatch.setattr("quantrt.tactics.cuda.fold.pairs._why_not_together", lambda together, apart: "")
    given = weights({"w": (16, 16, 3, 3), "w1": (16, 32, 1, 1), "b": (16,)})
    model = net(UP, {**given, "twice": np.array([1, 1, 2, 2], np.float32)}, opset=21)
    config = CudaConfig(builder_optimization_level=0, exclude_tactic_sources=("torch", "cudnn", "cublaslt"))
    lowering = CudaLowering(model, config, {"x": X}, gpu=gpu_named("A100"), device="cpu")
    codes = quantized(model, CUDA, {"x": X}) if precision == "int8" else None
    program = program_from_model(lowering.lower(codes, "fp16")[0])
    lowering.close()
    (step,) = (step for step in program.steps if "repeats" in step.options)
    assert step.runner == "phased_conv2d"
    assert step.options["repeats"] == [2, 2]
    assert [step.runner for step in program.steps].count("repeat_pixels") == 1  # of what a Concat reads
    assert step.options["pitches"] == [32]
    executor = CudaExecutor(program, model.inputs, model.outputs, device="cpu")
    for x in (X, samples(1, 16, 4, 3, seed=9)):
        (want,) = run_ort(model.graph, {"x": x})
        got = executor.run({"x": x})["y"]
        error = np.sqrt(np.mean((got - want) ** 2) / np.mean(want**2))
        assert error < (0.03 if precision == "int8" else 0.002)
    executor.close()
