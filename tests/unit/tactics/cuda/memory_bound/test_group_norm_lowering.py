# SPDX-License-Identifier: Apache-2.0
"""Norms over groups of channels in a quantized graph: floats in, codes of what follows out."""

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from quantrt.config import TACTIC_SOURCES, CudaConfig  # noqa: E402
from quantrt.gpu import gpu_named  # noqa: E402
from quantrt.model.model import Model  # noqa: E402
from quantrt.plan.program import Program  # noqa: E402
from quantrt.plan.program_json import program_from_model  # noqa: E402
from quantrt.quantize.qdq.write import write  # noqa: E402
from quantrt.quantize.quantized_model import QuantizedModel  # noqa: E402
from quantrt.quantize.targets.cuda import CUDA  # noqa: E402
from quantrt.reference.metrics import sqnr_db  # noqa: E402
from quantrt.regions.partition import partition  # noqa: E402
from quantrt.regions.region import GroupNorm, Region  # noqa: E402
from quantrt.runtime.cuda.executor import CudaExecutor  # noqa: E402
from quantrt.tactics.cuda.forms.forms import CODES, FLOAT, choose_forms  # noqa: E402
from quantrt.tactics.cuda.forms.workloads import Lowered, lower_region  # noqa: E402
from quantrt.tactics.cuda.lower import CudaLowering  # noqa: E402
from quantrt.tactics.cuda.survey import survey  # noqa: E402
from tests.nets import net, quantized, run_ort, samples, weights  # noqa: E402

REFERENCE_ONLY = CudaConfig(exclude_tactic_sources=TACTIC_SOURCES, builder_optimization_level=0)
INPUTS = {"x": samples(2, 8, 6, 6), "e": samples(2, 8, seed=2)}

BLOCK = """net (float[N,8,6,6] x, float[N,8] e) => (float[N,8,6,6] y) {
  r0 = Reshape(x, groups)
  i0 = InstanceNormalization(r0, ones, zeros)
  shape = Shape(x)
  b0 = Reshape(i0, shape)
  g0 = Mul(b0, gamma)
  n0 = Add(g0, beta)
  s0 = Sigmoid(n0)
  a0 = Mul(n0, s0)
  c0 = Conv<pads=[1,1,1,1]>(a0, w0, bias)
  t = Unsqueeze(e, axes)
  h = Add(c0, t)
  n1 = GroupNormalization<num_groups=4>(h, scale, offset)
  s1 = Sigmoid(n1)
  a1 = Mul(n1, s1)
  c1 = Conv<pads=[1,1,1,1]>(a1, w1)
  y = Add(x, c1)
}"""
"""A residual block of a diffusion UNet: a norm as torch.onnx writes it below opset 21, and an operator."""

SHAPES = {
    "w0": (8, 8, 3, 3),
    "w1": (8, 8, 3, 3),
    "bias": (8,),
    "gamma": (8, 1, 1),
    "beta": (8, 1, 1),
    "scale": (8,),
    "offset": (8,),
}
FIXED = {
    "groups": np.array([0, 4, -1], np.int64),
    "axes": np.array([2, 3], np.int64),
    "ones": np.ones(4, np.float32),
    "zeros": np.zeros(4, np.float32),
}


def block() -> Model:
    return net(BLOCK, {**weights(SHAPES), **FIXED}, opset=21)


def norms_of(codes: QuantizedModel) -> list[tuple[Region, Lowered]]:
    regions = partition(codes.graph)
    forms = choose_forms(codes.graph.graph, regions, codes)
    return [
        (region, lower_region(region, codes.graph.graph, forms, codes, "float16"))
        for region in regions.regions
        if isinstance(region.formula, GroupNorm)
    ]


def program_of(model: Model, codes: QuantizedModel | None) -> Program:
    lowering = CudaLowering(model, REFERENCE_ONLY, INPUTS, gpu=gpu_named("h200"), device="cpu")
    return program_from_model(lowering.lower(codes, "fp32")[0])


def run(program: Program, model: Model) -> np.ndarray:
    executor = CudaExecutor(program, model.inputs, model.outputs, device="cpu")
    (y,) = executor.run(INPUTS).values()
    executor.close()
    return y


def test_floats_in_codes_out():
    codes = quantized(block(), CUDA, INPUTS)
    (_, first), (region, second) = norms_of(codes)
    assert first.inputs == (("x", FLOAT),)
    assert first.outputs == (("a0", CODES),)
    assert first.types == ("int8",)
    assert [x.op for x in first.formula.epilogue.instructions] == ["mul", "add", "sigmoid", "mul", "quantize"]
    assert second.inputs == (("c0", FLOAT), ("t", FLOAT))
    assert second.outputs == (("a1", CODES),)
    assert region.formula.shift is not None


def test_nothing_runs_node_by_node():
    program = program_of(block(), None)
    assert "nodes" not in {step.runner for step in program.steps}
    (want,) = run_ort(block().graph, INPUTS)
    assert sqnr_db(want, run(program, block())) > 100


def test_the_codes_are_those_of_qdq():
    codes = quantized(block(), CUDA, INPUTS)
    (want,) = run_ort(write(codes), INPUTS)
    assert sqnr_db(want, run(program_of(codes.model, codes), codes.model)) > 55


def test_a_scale_for_every_group_becomes_one_for_every_channel():
    text = "net (float[N,8,6,6] x) => (float[N,8,6,6] y) { y = GroupNormalization<num_groups=4>(x, s, b) }"
    arrays = weights({"s": (4,), "b": (4,)})
    model = net(text, arrays, opset=18)
    (region,) = partition(model.graph).regions
    forms = choose_forms(model.graph.graph, partition(model.graph), None)
    lowered = lower_region(region, model.graph.graph, forms, None, "float16")
    assert lowered.constants["s"].tolist() == np.repeat(arrays["s"], 2).tolist()
    scale, bias = (torch.from_numpy(np.repeat(arrays[name], 2)) for name in ("s", "b"))
    want = torch.nn.functional.group_norm(torch.from_numpy(INPUTS["x"]), 4, scale, bias).numpy()
    lowering = CudaLowering(model, REFERENCE_ONLY, {"x": INPUTS["x"]}, gpu=gpu_named("h200"), device="cpu")
    program = program_from_model(lowering.lower(None, "fp32")[0])
    executor = CudaExecutor(program, model.inputs, model.outputs, device="cpu")
    (got,) = executor.run({"x": INPUTS["x"]}).values()
    executor.close()
    assert sqnr_db(want, got) > 100


@pytest.mark.parametrize("precision", ["fp16", "int8"])
def test_kernels_are_legal_on_every_gpu(precision: str):
    gpus = [gpu_named(name) for name in ("t4", "a100", "h200")]
    found = survey(block(), {"x": (2, 8, 6, 6), "e": (2, 8)}, gpus, precision=precision)
    for _, rows in found.findings:
        norms = [row for row in rows if isinstance(row.region.formula, GroupNorm)]
        assert len(norms) == 2
        assert all(
            row.fallback == "" and {x.source for x in row.legal} >= {"triton", "torch"} for row in norms
        )
