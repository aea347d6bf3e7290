# SPDX-License-Identifier: Apache-2.0
"""Channels put side by side by what makes them, with our kernels in Triton's interpreter."""

import numpy as np
import pytest

from quantrt.config import CudaConfig
from quantrt.gpu import gpu_named
from quantrt.model.for_gpu import for_gpu
from quantrt.model.load import load_model
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
INPUTS = {"x": samples(2, 16, 8, 8)}

PYRAMID = """net (float[N,16,8,8] x) => (float[N,32,8,8] y, float[N,16,4,4] z) {
  first = Conv<pads=[1,1,1,1]>(x, w3, b16)
  a = Relu(first)
  c1 = Conv<pads=[1,1,1,1]>(a, w3, b16)
  sum = Add(c1, a)
  c2 = Conv(sum, w1, b16)
  r2 = Relu(c2)
  p = MaxPool<kernel_shape=[3,3], pads=[1,1,1,1]>(r2)
  q = MaxPool<kernel_shape=[3,3], pads=[1,1,1,1]>(p)
  joined = Concat<axis=1>(a, sum, r2, p, q)
  mixed = Conv(joined, w80, b32)
  down = Conv<pads=[1,1,1,1], strides=[2,2]>(mixed, w32, b16)
  near = Resize<coordinate_transformation_mode="asymmetric", nearest_mode="floor">(down, , twice)
  up = ConvTranspose<strides=[2,2]>(down, wt, b16)
  again = Concat<axis=1>(near, up)
  y = Conv<pads=[1,1,1,1]>(again, w33, b32)
  z = Conv(down, w1, b16)
}"""

SHAPES = {
    "w3": (16, 16, 3, 3),
    "w1": (16, 16, 1, 1),
    "w80": (32, 80, 1, 1),
    "w32": (16, 32, 3, 3),
    "w33": (32, 32, 3, 3),
    "wt": (16, 16, 2, 2),
    "b16": (16,),
    "b32": (32,),
}
TWICE = np.array([1, 1, 2, 2], np.float32)


@pytest.fixture(scope="module")
def pyramid() -> Model:
    return net(PYRAMID, {**weights(SHAPES), "twice": TWICE}, opset=21)


def program_of(model: Model, codes: QuantizedModel | None, config: CudaConfig = OWN) -> Program:
    lowering = CudaLowering(model, config, INPUTS, gpu=gpu_named("a100"), device="cpu")
    return program_from_model(lowering.lower(codes, "fp16")[0])


def run(program: Program, model: Model, inputs=INPUTS) -> list[np.ndarray]:
    executor = CudaExecutor(program, model.inputs, model.outputs, device="cpu")
    found = executor.run(inputs)
    executor.close()
    return list(found.values())


def runners(program: Program) -> list[str]:
    return [step.runner for step in program.steps]


def pitches(program: Program) -> dict[str, list[int]]:
    return {x.region: x.options["pitches"] for x in program.steps if "pitches" in x.options}


def test_in_float16(pyramid: Model):
    program = program_of(pyramid, None)
    assert runners(program).count("joined") == 2
    assert "concat" not in runners(program)
    parts = [place.first for step in program.steps for place in step.places]
    assert parts == [0, 16, 32, 48, 64, 0, 16]
    assert set(map(tuple, pitches(program).values())) == {(80,), (80, 80), (32,)}
    for inputs in (INPUTS, {"x": samples(1, 16, 8, 8, seed=3)}):
        for want, got in zip(run_ort(pyramid.graph, inputs), run(program, pyramid, inputs), strict=True):
            assert sqnr_db(want, got) > 50


def test_in_int8(pyramid: Model):
    codes = quantized(pyramid, CUDA, INPUTS)
    program = program_of(pyramid, codes)
    assert runners(program).count("joined") == 2
    found = run(program, pyramid)
    for want, got in zip(run_ort(pyramid.graph, INPUTS), found, strict=True):
        assert sqnr_db(want, got) > 20
    lowering = CudaLowering(pyramid, OWN, INPUTS, gpu=gpu_named("a100"), device="cpu")
    dense = run(lowering.reference(codes, "fp16"), pyramid)
    for want, got in zip(dense, found, strict=True):
        np.testing.assert_allclose(want, got, atol=2e-3)  # floats behind equal codes


def test_kernels_that_know_no_gaps_are_copied(pyramid: Model):
    only = CudaConfig(builder_optimization_level=0, exclude_tactic_sources=("triton",))
    program = program_of(pyramid, None, only)
    assert "joined" in runners(program)
    assert not pitches(program)
    for want, got in zip(run_ort(pyramid.graph, INPUTS), run(program, pyramid), strict=True):
        assert sqnr_db(want, got) > 50


def test_a_detector_of_faces(shared_data):
    """Branches of one block are joined in place; boxes of four sizes, which are no channels, are not."""
    model = for_gpu(load_model(shared_data("models/ultraface_rfb320.onnx")))
    (spec,) = model.inputs
    inputs = {spec.name: samples(1, 3, 240, 320)}
    only = CudaConfig(builder_optimization_level=0, exclude_tactic_sources=("triton",))
    lowering = CudaLowering(model, only, inputs, gpu=gpu_named("a100"), device="cpu")
    program = program_from_model(lowering.lower(None, "fp16")[0])
    assert (runners(program).count("joined"), runners(program).count("concat")) == (1, 2)
    reasons = {row[1] for row in program.notes["mismatches"] if row[0] == "concat in place"}
    assert reasons == {"not along the channels of images"}
    for want, got in zip(run_ort(model.graph, inputs), run(program, model, inputs), strict=True):
        assert sqnr_db(want, got) > 50
