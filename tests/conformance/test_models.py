# SPDX-License-Identifier: Apache-2.0
"""Whole float models give what ONNX Runtime gives."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx_ir as ir
import onnxruntime
import pytest

pytest.importorskip("torch", reason="the torch operators need torch")

from quantrt.operators.element_types import to_numpy
from quantrt.operators.interpret import TorchGraph

RELATIVE_TO_PEAK = 1e-5
"""Sums in another order: measured 1e-7 to 3e-6 of the largest output on these models."""
SAMPLES = 2
NAMES = (
    "cifar10_resnet8",
    "cifar10_vit_tiny_d9",
    "cifar10_efficientvit_b0",
    "cifar10_mobilenetv3_small",
    "kws_dscnn",
    "ultraface_rfb320",
)


def check_against_onnxruntime(path: Path, inputs: dict[str, np.ndarray]) -> None:
    want = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"]).run(None, inputs)
    got = TorchGraph(ir.load(path)).run(inputs)
    for name, value, expected in zip(got, got.values(), want, strict=True):
        peak = float(np.abs(expected).max())
        assert peak > 0, name
        np.testing.assert_allclose(
            to_numpy(value), expected, rtol=0, atol=RELATIVE_TO_PEAK * peak, err_msg=name
        )


def random_inputs(path: Path, rng: np.random.Generator) -> dict[str, np.ndarray]:
    shapes = {
        value.name: [n if isinstance(n, int) else SAMPLES for n in value.shape]
        for value in ir.load(path).graph.inputs
    }
    return {name: rng.normal(size=shape).astype(np.float32) for name, shape in shapes.items()}


def test_the_demo_model(demo_dir: Path, rng: np.random.Generator):
    path = demo_dir / "digits_resnet.onnx"
    check_against_onnxruntime(path, random_inputs(path, rng))


@pytest.mark.parametrize("name", NAMES)
def test_real_models(name: str, shared_data: Callable[[str], Path], rng: np.random.Generator):
    path = shared_data(f"models/{name}.onnx")
    check_against_onnxruntime(path, random_inputs(path, rng))


@pytest.mark.parametrize("rate", [8000, 16000])
def test_a_model_with_branches_and_a_recurrent_layer(
    rate: int, shared_data: Callable[[str], Path], rng: np.random.Generator
):
    path = shared_data("models/silero_vad_16k_op15.onnx")
    sound = rng.normal(size=(SAMPLES, rate // 16000 * 288 + 288)).astype(np.float32) / 10
    inputs = {
        "input": sound,
        "state": rng.normal(size=(2, SAMPLES, 128)).astype(np.float32),
        "sr": np.array(rate, np.int64),
    }
    check_against_onnxruntime(path, inputs)
