# SPDX-License-Identifier: Apache-2.0
"""Values that a program has to store in a certain element type."""

from dataclasses import replace

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="programs run in torch")

from quantrt.config import CudaConfig  # noqa: E402
from quantrt.gpu import gpu_named  # noqa: E402
from quantrt.model.binding import Binding  # noqa: E402
from quantrt.model.model import Model  # noqa: E402
from quantrt.plan.program import Program  # noqa: E402
from quantrt.plan.program_json import program_from_model  # noqa: E402
from quantrt.quantize.quantized_model import QuantizedModel  # noqa: E402
from quantrt.quantize.targets.cuda import CUDA  # noqa: E402
from quantrt.runtime.cuda.executor import CudaExecutor, specs_of  # noqa: E402
from quantrt.tactics.cuda.lower import CudaLowering  # noqa: E402
from quantrt.tactics.cuda.program.trace import trace  # noqa: E402
from tests.nets import quantized, resnet, run_ort, samples  # noqa: E402

X = samples(4, 3, 16, 16)
ONLY_TORCH = CudaConfig(exclude_tactic_sources=("triton", "cublaslt", "cudnn"), builder_optimization_level=0)


def lowered(
    model: Model, precision: str, codes: QuantizedModel | None = None, **stored: Binding
) -> tuple[Program, dict[str, str], np.ndarray]:
    """The program, the element type of every buffer, and its output."""
    model = replace(model, stored=stored)
    lowering = CudaLowering(model, ONLY_TORCH, {"x": X}, gpu=gpu_named("H200"), device="cpu")
    program = program_from_model(lowering.lower(codes, precision)[0])
    executor = CudaExecutor(program, *specs_of(program), device="cpu")
    try:
        got = executor.run({"x": X})["y"]
    finally:
        executor.close()
    facts = trace(program, {"x": X}, torch.device("cpu")).facts
    return program, {name: fact.dtype for name, fact in facts.items()}, got


@pytest.fixture(scope="module")
def model() -> Model:
    return resnet()


@pytest.fixture(scope="module")
def eight(model: Model) -> QuantizedModel:
    return quantized(model, CUDA, {"x": X}, method="minmax")


def close(model: Model, got: np.ndarray, ratio: float) -> bool:
    (want,) = run_ort(model.graph, {"x": X})
    return bool(np.linalg.norm(got - want) < ratio * np.linalg.norm(want))


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_another_float_than_the_engines(model: Model, dtype: str):
    plain, _, _ = lowered(model, "fp16")
    program, types, got = lowered(model, "fp16", r1=Binding(dtype), flat=Binding(dtype))
    assert (types["r0"], types["r1"]) == ("float16", dtype)
    assert len(program.steps) == len(plain.steps), "readers take any float: nothing is converted"
    assert close(model, got, 2e-2)


def test_halves_in_an_engine_of_float32(model: Model):
    _, types, got = lowered(model, "fp32", r1=Binding("float16"))
    assert (types["r0"], types["r1"]) == ("float32", "float16")
    assert close(model, got, 5e-3)


def test_a_float_where_readers_want_codes(model: Model, eight: QuantizedModel):
    _, before, want = lowered(model, "fp16", eight)
    assert "r1" not in before
    assert before["r1#int8"] == "int8"
    program, types, got = lowered(model, "fp16", eight, r1=Binding("float32"))
    assert (types["r1"], types["r1#int8"]) == ("float32", "int8")
    (maker,) = (step for step in program.steps if "r1" in step.outputs)
    assert maker.outputs == ("r1",), "its kernel stores floats alone"
    assert [step.region for step in program.steps if "r1#int8" in step.outputs] == ["convert r1#int8"]
    np.testing.assert_array_equal(got, want)


def test_codes_where_readers_want_floats(model: Model):
    scale = 0.05
    program, types, got = lowered(model, "fp16", r1=Binding("int8", scale))
    assert (types["r1#int8"], types["r1"]) == ("int8", "float16")
    (maker,) = (step for step in program.steps if "r1#int8" in step.outputs)
    assert maker.outputs == ("r1#int8",)
    assert [step.region for step in program.steps if "r1" in step.outputs] == ["convert r1"]
    assert close(model, got, 5e-2)


def test_codes_of_the_output_are_floats_again(model: Model):
    (want,) = run_ort(model.graph, {"x": X})
    scale = float(np.abs(want).max() / 127)
    program, types, got = lowered(model, "fp32", y=Binding("int8", scale))
    assert program.outputs == (("y", "y", "float32"),)
    assert types["y#int8"] == "int8"
    np.testing.assert_allclose(got, np.rint(got / scale) * scale, atol=1e-5)
    assert np.abs(got - want).max() < 0.51 * scale
