# SPDX-License-Identifier: Apache-2.0
"""Whole models lowered on a CPU: profiles of shapes, further targets, and a GPU that is not here."""

from contextlib import closing

import numpy as np
import pytest
import torch

from quantrt.config import CudaConfig
from quantrt.errors import DataError, UsageError
from quantrt.gpu import gpu_named
from quantrt.ir.tensor_spec import TensorSpec
from quantrt.model.load import load_model
from quantrt.model.model import Model
from quantrt.plan.program import Program
from quantrt.plan.program_json import program_from_model
from quantrt.quantize.targets.cuda import CUDA
from quantrt.runtime.cuda.executor import CudaExecutor, specs_of
from quantrt.tactics.cuda.lower import CudaLowering
from quantrt.tactics.cuda.program.profiles import regions_that_fail
from quantrt.tactics.cuda.tuning.tune import tune
from tests.nets import net, quantized, resnet, run_ort, samples
from tests.programs import node_step, nodes_of

H200 = gpu_named("H200")
REFERENCE_ONLY = ("triton", "cublaslt", "cudnn")


def lowering(model: Model, inputs: dict[str, np.ndarray], **options: object) -> CudaLowering:
    """A CPU stands in for the GPU; everything runs by the reference."""
    config = CudaConfig(exclude_tactic_sources=REFERENCE_ONLY, builder_optimization_level=0, **options)
    return CudaLowering(model, config, inputs, gpu=H200, device="cpu")


def on_cpu(program: Program) -> CudaExecutor:
    return CudaExecutor(program, *specs_of(program), device="cpu")


def assert_close(got: np.ndarray, want: np.ndarray, ratio: float) -> None:
    """The noise is at most `ratio` of the signal, in amplitude."""
    assert got.shape == want.shape
    assert np.linalg.norm(got - want) <= ratio * np.linalg.norm(want)


@pytest.mark.parametrize("shapes", [(), ("x=1x3x16x16:8x3x16x16:32x3x16x16",)], ids=["any", "profile"])
def test_a_network_built_at_batch_8_runs_at_others(shapes):
    model = resnet()
    made, _ = lowering(model, {"x": samples(8, 3, 16, 16)}, profiles=shapes).lower(None, "fp16")
    executor = on_cpu(program_from_model(made))
    for batch in (1, 3, 32):
        x = samples(batch, 3, 16, 16, seed=batch)
        (want,) = run_ort(model.graph, {"x": x})
        assert_close(executor.run({"x": x})["y"], want, 5e-3)
    if shapes:
        with pytest.raises(DataError, match="input 'x'") as error:
            executor.run({"x": samples(33, 3, 16, 16)})
        assert error.value.got == "x [33, 3, 16, 16]"
        assert "1x3x16x16:8x3x16x16:32x3x16x16" in str(error.value.expected)
    else:
        assert executor.run({"x": samples(33, 3, 16, 16)})["y"].shape == (33, 5)


@pytest.mark.slow
def test_a_transformer_built_at_batch_8_runs_at_others(shared_data):
    model = load_model(shared_data("models/cifar10_vit_tiny_d9.onnx"))
    (spec,) = model.inputs
    sizes = spec.shape[1:]
    whole = "x".join(map(str, sizes))
    profile = f"{spec.name}=1x{whole}:8x{whole}:32x{whole}"
    inputs = {spec.name: samples(8, *sizes)}
    made, _ = lowering(model, inputs, profiles=(profile,)).lower(None, "fp16")
    executor = on_cpu(program_from_model(made))
    for batch in (1, 3, 32):
        x = samples(batch, *sizes, seed=batch)
        (want,) = run_ort(model.graph, {spec.name: x})
        assert_close(executor.run({spec.name: x})[model.outputs[0].name], want, 2e-2)
    with pytest.raises(DataError, match=spec.name):
        executor.run({spec.name: samples(64, *sizes)})


def test_tactics_are_chosen_at_the_best_shapes(monkeypatch):
    tuned = []

    def remembering(workloads, tactics, **options):
        tuned.extend(workloads)
        return tune(workloads, tactics, **options)

    monkeypatch.setattr("quantrt.tactics.cuda.lower.tune", remembering)
    profile = "x=2x3x16x16:5x3x16x16:9x3x16x16"
    lowering(resnet(), {"x": samples(1, 3, 16, 16)}, profiles=(profile,)).lower(None, "fp16")
    assert {workload.inputs[0].shape[0] for workload in tuned} == {5}


def test_a_profile_that_the_model_does_not_have_is_a_usage_error():
    with pytest.raises(UsageError, match="no input 'images'"):
        lowering(resnet(), {"x": samples(1, 3, 16, 16)}, profiles=("images=1x3x16x16",))


def test_what_cannot_run_at_a_corner_is_found():
    program = Program(
        inputs=(("x", "float32"),),
        outputs=(("y", "y", "float32"),),
        steps=(node_step("view", ["turn"], ["x"], ["y"]),),
        weights={"shape": np.array([2, -1])},
        kernels={},
        nodes=nodes_of("g (float[N, M] x) => (float[A, B] y) { [turn] y = Reshape (x, shape) }", {
            "shape": np.array([2, -1])}),
    )  # fmt: skip
    fine, odd = {"x": np.zeros((4, 3), np.float32)}, {"x": np.zeros((3, 3), np.float32)}
    assert regions_that_fail(program, [fine], torch.device("cpu")) == {}
    found = regions_that_fail(program, [fine, odd], torch.device("cpu"))
    assert list(found) == ["region of turn"]
    assert "3, 3" in str(found["region of turn"])


def test_a_gpu_that_is_not_here_gets_machine_code_for_every_target():
    model = net(
        "net (float[N,64] x) => (float[N,32] y) { h = MatMul(x, w) y = Relu(h) }",
        {"w": samples(64, 32)},
    )
    config = CudaConfig(targets=("sm_80", "sm_120"), builder_optimization_level=0)
    with closing(CudaLowering(model, config, {"x": samples(16, 64)}, gpu=H200, device=None)) as lowering:
        made, _ = lowering.lower(None, "fp16")
    program = program_from_model(made)
    assert program.kernels
    for kernel in program.kernels.values():
        assert set(kernel.cubins) == {80, 90, 120}
        assert all(size <= 99 * 1024 for size in kernel.shared_bytes.values())
    assert {row["origin"] for row in program.notes["regions"].values() if row["tactic"]} == {"estimated"}
    assert program.notes["tuning"] == ["not timed on the device: H200 is not here"]


def test_the_reference_computes_the_codes_of_a_quantized_model_on_a_cpu():
    model = resnet()
    lowered = lowering(model, {"x": samples(2, 3, 16, 16)})
    found = quantized(model, CUDA, {"x": samples(16, 3, 16, 16)})
    executor = on_cpu(lowered.reference(found, "fp16"))
    x = samples(4, 3, 16, 16, seed=7)
    (want,) = run_ort(model.graph, {"x": x})
    assert_close(executor.run({"x": x})["y"], want, 0.2)
    assert any("#int8" in name for step in lowered.reference(found, "fp16").steps for name in step.outputs)
    assert isinstance(executor.inputs[0], TensorSpec)
