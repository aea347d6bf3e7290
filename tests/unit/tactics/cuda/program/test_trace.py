# SPDX-License-Identifier: Apache-2.0
import weakref
from dataclasses import replace

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="programs run in torch")

from quantrt.config import CudaConfig  # noqa: E402
from quantrt.gpu import gpu_named  # noqa: E402
from quantrt.quantize.targets.cuda import CUDA  # noqa: E402
from quantrt.tactics.cuda.lower import CudaLowering  # noqa: E402
from quantrt.tactics.cuda.program import trace as trace_module  # noqa: E402
from quantrt.tactics.cuda.program.trace import trace, trace_facts  # noqa: E402
from tests.denoisers import unet  # noqa: E402
from tests.encoder import encoder, mask_of, token_inputs  # noqa: E402
from tests.nets import net, quantized, resnet, run_ort, samples  # noqa: E402

CPU = torch.device("cpu")


def test_weights_are_on_the_device_one_step_at_a_time(monkeypatch: pytest.MonkeyPatch):
    model, x = resnet(), samples(2, 3, 16, 16)
    program = CudaLowering(model, CudaConfig(), {"x": x}, gpu=gpu_named("H200"), device="cpu").reference(
        None, "fp32"
    )
    most = max(len(step.weights) for step in program.steps)
    assert len(program.weights) > 2 * most
    alive: weakref.WeakSet[torch.Tensor] = weakref.WeakSet()
    counts = []

    def upload(key: str, array: np.ndarray, device: torch.device) -> torch.Tensor:
        tensor = torch.tensor(array, device=device)
        alive.add(tensor)
        counts.append(len(alive))
        return tensor

    monkeypatch.setattr(trace_module, "upload", upload)
    traced = trace(program, {"x": x}, CPU)
    assert len(counts) >= len(program.weights)
    assert max(counts) <= most
    (want,) = run_ort(model.graph, {"x": x})
    assert traced.facts["y"].shape == want.shape
    np.testing.assert_allclose(traced.extremes["y"].numpy(), [want.min(), want.max()], rtol=1e-4)


NETS = {
    "resnet": lambda: (resnet(), {"x": samples(2, 3, 16, 16)}),
    "encoder": lambda: (encoder(), token_inputs(mask_of([8, 5]))),
    "unet": lambda: (
        unet(),
        {"sample": samples(2, 4, 4, 4), "time": samples(2, 8), "text": samples(2, 5, 6)},
    ),
}


@pytest.mark.parametrize("precision", ["fp32", "fp16", "int8"])
@pytest.mark.parametrize("name", NETS)
def test_facts_need_no_values(name: str, precision: str):
    model, inputs = NETS[name]()
    codes = quantized(model, CUDA, inputs) if precision == "int8" else None
    lowering = CudaLowering(model, CudaConfig(), inputs, gpu=gpu_named("H200"), device="cpu")
    program = lowering.reference(codes, "fp32" if precision == "fp32" else "fp16")
    wanted = trace(program, inputs, CPU)
    assert set(wanted.extremes) <= set(wanted.facts)
    assert trace_facts(program, inputs, CPU) == wanted.facts
    found = trace(program, inputs, torch.device("meta"))
    assert found.facts == wanted.facts
    assert not found.extremes


def test_values_are_computed_where_a_step_looks_at_them():
    """How many numbers are not zero is no question of shapes: the facts are those of the values."""
    model = net(
        "net (float[N] x) => (int64[1,M] y) { p = Relu(x) \n y = NonZero(p) }",
    )
    x = np.float32([1, -1, 2, 3])
    program = CudaLowering(model, CudaConfig(), {"x": x}, gpu=gpu_named("H200"), device="cpu").reference(
        None, "fp32"
    )
    assert trace_facts(program, {"x": x}, CPU)["y"].shape == (1, 3)
    hidden = replace(program, steps=tuple(replace(step, reads_values=False) for step in program.steps))
    assert trace_facts(hidden, {"x": x}, CPU)["y"].shape == (1, 3)
