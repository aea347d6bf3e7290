# SPDX-License-Identifier: Apache-2.0
"""Angles of positions are float32 in an engine of halves; activations before a sine are not."""

from contextlib import closing

import numpy as np
import pytest

pytest.importorskip("torch", reason="programs run in torch")

from quantrt.config import CudaConfig
from quantrt.gpu import gpu_named
from quantrt.model.for_gpu import for_gpu
from quantrt.model.model import Model
from quantrt.reference.metrics import sqnr_db
from quantrt.regions.partition import partition
from quantrt.runtime.cuda.executor import CudaExecutor, specs_of
from quantrt.tactics.cuda.forms.angles import angles
from quantrt.tactics.cuda.lower import CudaLowering
from tests.nets import net, run_ort, samples

PROMPT = """net (float[N,2] points) => (float[N,64] y) {
    unit = Div(points, size) moved = Sub(unit, half) at = MatMul(moved, w) turned = Mul(at, turn)
    s = Sin(turned) c = Cos(turned) y = Concat<axis=1>(s, c)
}"""
TIME = "net (float[N,1] t) => (float[N,32] y) { a = Mul(t, rates) y = Cos(a) }"
LAYERS = "net (float[N,64] x) => (float[N,32] y) { a = MatMul(x, v) y = Sin(a) }"
ARRAYS = {
    "size": np.float32(256.0),
    "half": np.float32(0.5),
    "turn": np.float32(2 * np.pi),
    "w": 32 * samples(2, 32, seed=3),
    "rates": (10000.0 ** (-np.arange(32) / 32)).astype(np.float32),
    "v": samples(64, 32, seed=4),
}
LEAST_DB = 60.0
"""Of sines that are rounded to halves: 2^-12 of 1 at most."""


def _net(text: str) -> Model:
    return net(text, {name: array for name, array in ARRAYS.items() if f"{name})" in text})


def _halves(model: Model, inputs: dict[str, np.ndarray]) -> np.ndarray:
    model = for_gpu(model)
    lowering = CudaLowering(model, CudaConfig(), inputs, gpu=gpu_named("H200"), device="cpu")
    with closing(lowering):
        program = lowering.reference(None, "fp16")
    with closing(CudaExecutor(program, *specs_of(program), device="cpu")) as executor:
        return executor.run(inputs)["y"]


@pytest.mark.parametrize(
    ("text", "inputs"),
    [
        (PROMPT, {"points": 256 * np.random.default_rng(0).random((40, 2), np.float32)}),
        (TIME, {"t": np.arange(0.3, 999, 7.7, np.float32)[:, None]}),
    ],
    ids=["points of a prompt", "times of a diffusion"],
)
def test_encodings_of_positions_in_halves(text: str, inputs: dict[str, np.ndarray]):
    model = _net(text)
    (want,) = run_ort(model.graph, inputs)
    assert sqnr_db(want, _halves(model, inputs)) > LEAST_DB


def test_what_a_layer_makes_is_no_position():
    model = _net(LAYERS)
    assert angles(model.graph.graph, partition(model.graph)) == frozenset()
