# SPDX-License-Identifier: Apache-2.0
"""Programs whose inputs and outputs are not of the graph's types: no step is spent where none is needed."""

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pytest

pytest.importorskip("torch", reason="programs run in torch")

from quantrt.config import CudaConfig
from quantrt.gpu import gpu_named
from quantrt.ir.clone import clone
from quantrt.ir.layout import layout_named
from quantrt.model.binding import Binding
from quantrt.model.model import Model
from quantrt.model.passes.lay_out_edges import lay_out_edges
from quantrt.plan.program import Program
from quantrt.plan.program_json import program_from_model
from quantrt.quantize.quantized_model import QuantizedModel
from quantrt.quantize.targets.cuda import CUDA
from quantrt.runtime.cuda.executor import CudaExecutor, specs_of
from quantrt.tactics.cuda.lower import CudaLowering
from tests.nets import net, quantized, resnet, run_ort, samples

X = samples(4, 3, 16, 16)
ONLY_TORCH = CudaConfig(exclude_tactic_sources=("triton", "cublaslt", "cudnn"), builder_optimization_level=0)
SCALE = 0.03


def codes(x: np.ndarray, scale: float) -> np.ndarray:
    return np.clip(np.rint(x / np.float32(scale)), -128, 127).astype(np.int8)


def lowered(
    model: Model, x: np.ndarray, precision: str, quantized_model: QuantizedModel | None = None
) -> tuple[Program, np.ndarray]:
    """The program, and its one output."""
    lowering = CudaLowering(model, ONLY_TORCH, {"x": x}, gpu=gpu_named("H200"), device="cpu")
    program = program_from_model(lowering.lower(quantized_model, precision)[0])
    executor = CudaExecutor(program, *specs_of(program), device="cpu")
    try:
        return program, next(iter(executor.run({"x": x}).values()))
    finally:
        executor.close()


def bound(model: Model, **bindings: Binding) -> Model:
    return replace(model, bindings=bindings)


def conversions(program: Program) -> list[str]:
    return [step.region for step in program.steps if step.region.startswith("convert ")]


def close(got: np.ndarray, want: np.ndarray, ratio: float) -> bool:
    return bool(np.linalg.norm(got.astype(np.float32) - want) < ratio * np.linalg.norm(want))


def test_halves_go_into_halves_without_a_step():
    model = resnet()
    (want,) = run_ort(model.graph, {"x": X})
    plain, _ = lowered(model, X, "fp16")
    halves = bound(model, x=Binding("float16"), y=Binding("float16"))
    program, got = lowered(halves, X.astype(np.float16), "fp16")
    assert conversions(plain) == ["convert x#float16"]
    assert conversions(program) == []
    assert len(program.steps) == len(plain.steps) - 1
    assert (program.inputs, program.outputs) == ((("x", "float16"),), (("y", "y", "float16"),))
    assert got.dtype == np.float16
    assert close(got, want, 5e-3)


@pytest.mark.parametrize(
    ("dtype", "precision"), [("float16", "fp32"), ("bfloat16", "fp16"), ("float16", "bf16")]
)
def test_other_floats_are_converted_once(dtype: str, precision: str):
    import ml_dtypes

    model = resnet()
    (want,) = run_ort(model.graph, {"x": X})
    x = X.astype(ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype)
    program, got = lowered(bound(model, x=Binding(dtype)), x, precision)
    assert len(conversions(program)) == 1
    assert close(got, want, 3e-2)


def test_channels_innermost_are_a_view():
    model = resnet()
    (want,) = run_ort(model.graph, {"x": X})
    graph = clone(model.graph)
    lay_out_edges(graph, {"x": layout_named("nhwc")})
    model = bound(replace(model, graph=graph), x=Binding("float16"))
    x = np.ascontiguousarray(X.transpose(0, 2, 3, 1)).astype(np.float16)
    program, got = lowered(model, x, "fp16")
    assert conversions(program) == []
    assert program.steps[0].runner == "view"
    assert close(got, want, 5e-3)


def test_bytes_become_floats_or_codes_in_one_step():
    model = resnet()
    pixels = np.random.default_rng(0).integers(0, 256, X.shape).astype(np.uint8)
    floats = pixels.astype(np.float32)
    (want,) = run_ort(model.graph, {"x": floats})
    program, got = lowered(bound(model, x=Binding("uint8")), pixels, "fp16")
    assert conversions(program) == ["convert x#float16"]
    assert close(got, want, 1e-2)
    eight = quantized(model, CUDA, {"x": floats}, method="minmax")
    program, got = lowered(bound(model, x=Binding("uint8")), pixels, "fp16", eight)
    assert conversions(program) == ["convert x#int8"]
    assert close(got, want, 5e-2)


def test_codes_are_read_as_they_come():
    model = resnet()
    eight = quantized(model, CUDA, {"x": X}, method="minmax")
    scale = float(eight.activations["x"].scale)
    plain, want = lowered(model, X, "fp16", eight)
    program, got = lowered(bound(model, x=Binding("int8", scale)), codes(X, scale), "fp16", eight)
    assert conversions(plain) == ["convert x#int8"]
    assert conversions(program) == []
    assert len(program.steps) == len(plain.steps) - 1
    np.testing.assert_array_equal(got, want)


def test_codes_of_another_scale_are_converted():
    model = resnet()
    (want,) = run_ort(model.graph, {"x": X})
    eight = quantized(model, CUDA, {"x": X}, method="minmax")
    x = codes(X, SCALE)
    for quantized_model, ratio in ((eight, 5e-2), (None, 3e-2)):
        program, got = lowered(bound(model, x=Binding("int8", SCALE)), x, "fp16", quantized_model)
        assert len(conversions(program)) == 1
        assert close(got, want, ratio)


@pytest.mark.parametrize("last", ["y = Identity(h)", "y = Reshape(h, s)", "y = TopK_free(h)"])
def test_codes_leave_in_the_last_step(last: str):
    if "free" in last:  # an operator without a kernel: its result is converted
        last = "y = CumSum(h, a)"
    model = net(
        f"net (float[N,3] x) => (float[N,5] y) {{ g = MatMul(x, w) h = Relu(g) {last} }}",
        {
            "w": samples(3, 5),
            "s": np.array([-1, 5]),
            "a": np.array(1),
        },
    )
    x = samples(6, 3)
    (want,) = run_ort(model.graph, {"x": x})
    scale = float(np.abs(want).max() / 127)
    plain, _ = lowered(model, x, "fp32")
    program, got = lowered(bound(model, y=Binding("int8", scale)), x, "fp32")
    assert got.dtype == np.int8
    assert np.abs(got * np.float32(scale) - want).max() <= 0.51 * scale
    assert len(program.steps) == len(plain.steps) + ("CumSum" in last)


def test_what_is_read_inside_too_is_stored_in_both_forms():
    model = net(
        "net (float[N,3] x) => (float[N,5] h, float[N,5] y) { h = MatMul(x, w) y = Exp(h) }",
        {"w": samples(3, 5)},
    )
    x = samples(6, 3)
    want: Mapping[str, np.ndarray] = dict(zip("hy", run_ort(model.graph, {"x": x}), strict=True))
    program, got = lowered(bound(model, h=Binding("int8", SCALE)), x, "fp32")
    np.testing.assert_array_equal(got, codes(want["h"], SCALE))
    assert program.outputs[0] == ("h", "h#int8", "int8")
