# SPDX-License-Identifier: Apache-2.0
import weakref

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="programs run in torch")

from quantrt.config import CudaConfig  # noqa: E402
from quantrt.gpu import gpu_named  # noqa: E402
from quantrt.tactics.cuda import trace as trace_module  # noqa: E402
from quantrt.tactics.cuda.lower import CudaLowering  # noqa: E402
from quantrt.tactics.cuda.trace import trace  # noqa: E402
from tests.nets import resnet, run_ort, samples  # noqa: E402

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
