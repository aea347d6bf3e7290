# SPDX-License-Identifier: Apache-2.0
"""What GPUs that are not here could do with a model: every region is answered, with its reasons."""

from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import onnx.parser
import pytest

from quantrt.config import CudaConfig
from quantrt.gpu import GPUS, GpuFacts, gpu_named
from quantrt.kernels.compile_all import compilers
from quantrt.model.load import load_model, make_model
from quantrt.model.model import Model
from quantrt.plan.program_json import program_from_model
from quantrt.quantize.explicit.read import read
from quantrt.quantize.qdq.write import write
from quantrt.quantize.targets.tensorrt import TENSORRT
from quantrt.tactics.cuda import lower
from quantrt.tactics.cuda.survey import Finding, survey
from quantrt.worker_process import WorkerPool
from tests.nets import net, quantized, samples, weights

TRITON_INT8 = 80
"""From this compute capability on Triton compiles int8 products: mma m16n8k32, not on Turing."""

CNN = """<ir_version: 8, opset_import: ["": 13]>
g (float[n,64,14,14] image) => (float[n,40] logits)
{ c = Conv<pads = [1,1,1,1]>(image, w1, b1)
  r = Relu(c)
  d = Conv<pads = [1,1,1,1]>(r, w2, b2)
  s = Add(d, image)
  t = Relu(s)
  p = GlobalAveragePool(t)
  f = Flatten(p)
  logits = Gemm<transB = 1>(f, w3, b3) }"""

CNN_WEIGHTS = {
    "w1": (64, 64, 3, 3),
    "b1": (64,),
    "w2": (64, 64, 3, 3),
    "b2": (64,),
    "w3": (40, 64),
    "b3": (40,),
}

ONE_IMAGE = {"x": samples(1, 4, 48, 64)}

ONE_CONV = """<ir_version: 8, opset_import: ["": 13]>
g (float[n,4,48,64] x) => (float[n,320,48,64] y) { y = Conv<pads = [1,1,1,1]>(x, w, b) }"""


def model_of(text: str, weights: dict[str, tuple[int, ...]], rng: np.random.Generator, folder: Path) -> Model:
    model = onnx.parser.parse_model(text)
    for name, shape in weights.items():
        array = rng.standard_normal(shape).astype(np.float32)
        model.graph.initializer.append(onnx.numpy_helper.from_array(array, name))
    onnx.save(model, folder / "model.onnx")
    return load_model(folder / "model.onnx")


def findings(model: Model, gpu: str, **options: object) -> list[Finding]:
    shapes = {spec.name: tuple(d if isinstance(d, int) else 2 for d in spec.shape) for spec in model.inputs}
    [(_, found)] = survey(model, shapes, [gpu_named(gpu)], **options).findings
    return list(found)


@pytest.fixture
def cnn(rng: np.random.Generator, tmp_path: Path) -> Model:
    return model_of(CNN, CNN_WEIGHTS, rng, tmp_path)


def test_every_node_is_in_one_region(cnn: Model):
    nodes = [node for finding in findings(cnn, "h200") for node in finding.region.nodes]
    assert sorted(nodes) == sorted(node.name for node in cnn.graph.graph)


@pytest.mark.parametrize("gpu", ["a10", "a100", "l4", "h100", "b200"])
def test_int8_convolutions_have_kernels_from_ampere_on(gpu: str, cnn: Model):
    convs = [found for found in findings(cnn, gpu) if type(found.region.formula).__name__ == "Conv"]
    assert [found.precision for found in convs] == ["int8", "int8"]
    assert all(found.legal and not found.fallback for found in convs)


def test_a_t4_falls_back_and_says_why(cnn: Model):
    convs = [found for found in findings(cnn, "t4") if type(found.region.formula).__name__ == "Conv"]
    for found in convs:
        assert found.precision == "int8"
        assert "compute capability" in found.fallback
        assert found.legal, "the convolution runs dequantized"


def test_floats_are_asked_for_as_floats(cnn: Model):
    assert {found.precision for found in findings(cnn, "h200", precision="fp16")} <= {"", "fp16"}
    assert {found.precision for found in findings(cnn, "h200", precision="fp32")} <= {"", "fp32"}


def test_pools_run_in_torch_and_views_are_free(cnn: Model):
    by_formula = {type(found.region.formula).__name__: found for found in findings(cnn, "h200")}
    assert by_formula["View"].fallback == ""
    assert by_formula["View"].precision == ""
    for name, found in by_formula.items():
        if name == "Nodes":
            assert "operator by operator" in found.fallback


@pytest.mark.parametrize("gpu", GPUS, ids=lambda gpu: gpu.name)
def test_an_int8_convolution_from_few_to_many_channels_plans_everywhere(
    gpu: GpuFacts, rng: np.random.Generator, tmp_path: Path
):
    """4 to 320 channels, 48 x 64, codes in, floats out: TensorRT has no kernel for it on a T4, and fails."""
    model = model_of(ONE_CONV, {"w": (320, 4, 3, 3), "b": (320,)}, rng, tmp_path)
    [(_, found)] = survey(model, {"x": (1, 4, 48, 64)}, [gpu]).findings
    [conv] = [row for row in found if type(row.region.formula).__name__ == "Conv"]
    assert conv.precision == "int8"
    assert conv.legal
    assert bool(conv.fallback) is (gpu.capability < TRITON_INT8)


@pytest.fixture(scope="module")
def one_pool() -> Iterator[WorkerPool]:
    """Processes that compile, for one GPU after the other."""
    with closing(compilers(1)) as pool:
        yield pool


@pytest.mark.parametrize("gpu", GPUS, ids=lambda gpu: gpu.name)
def test_the_same_with_its_own_pairs_is_planned_everywhere(
    gpu: GpuFacts, one_pool: WorkerPool, monkeypatch: pytest.MonkeyPatch
):
    """As its QuantizeLinear and DequantizeLinear nodes say: steps, with machine code for that GPU."""
    text = "net (float[N,4,48,64] x) => (float[N,320,48,64] y) { y = Conv<pads=[1,1,1,1]>(x, w, b) }"
    floats = net(text, weights({"w": (320, 4, 3, 3), "b": (320,)}))
    inputs = {"x": samples(1, 4, 48, 64)}
    given = make_model(write(quantized(floats, TENSORRT, inputs, method="minmax")))
    found = read(given)
    assert [row.op_type for row in found.placement.decisions if row.is_int8] == ["Conv"]
    monkeypatch.setattr(lower, "compilers", lambda: one_pool)
    lowering = lower.CudaLowering(
        replace(given, graph=found.graph), CudaConfig(), inputs, gpu=gpu, device=None
    )
    made, kept = lowering.lower(found, "fp16")
    program = program_from_model(made)
    assert kept is not None and kept.has_int8
    assert program.outputs == (("y", "y", "float32"),)
    (conv,) = [step for step in program.steps if step.runner == "convolution" or "conv2d" in step.runner]
    assert ("conv2d" in conv.runner) is (gpu.capability >= TRITON_INT8)
    assert all(gpu.capability in kernel.cubins for kernel in program.kernels.values())
    assert any("not timed on the device" in note for note in program.notes["tuning"])


def test_a_shape_that_depends_on_values_is_named(rng: np.random.Generator, tmp_path: Path):
    text = """<ir_version: 8, opset_import: ["": 13]>
    g (float[8] x) => (float[1,k] y) { i = NonZero(x) f = Cast<to = 1>(i) e = Exp(f) y = Sqrt(e) }"""
    found = findings(model_of(text, {}, rng, tmp_path), "h200", precision="fp16")
    reasons = [row.fallback for row in found if type(row.region.formula).__name__ == "Rows"]
    assert reasons
    assert all("known only when the model runs" in reason for reason in reasons)


def test_several_gpus_are_answered_in_order(cnn: Model):
    gpus = [gpu_named(name) for name in ("v100", "orin")]
    found = survey(cnn, {"image": (1, 64, 14, 14)}, gpus).findings
    assert [gpu.name for gpu, _ in found] == ["V100", "Orin"]
    assert [len(rows) for _, rows in found][0] == [len(rows) for _, rows in found][1] > 0
