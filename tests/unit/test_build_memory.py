# SPDX-License-Identifier: Apache-2.0
"""Builds that may take only so much of a GPU's memory, for which the CPU's stands in."""

from dataclasses import replace

import pytest

torch = pytest.importorskip("torch", reason="programs run in torch")

from quantrt.build import build  # noqa: E402
from quantrt.config import (  # noqa: E402
    AssignConfig,
    BuildConfig,
    CalibrationConfig,
    CudaConfig,
    DeviceConfig,
)
from quantrt.errors import ModelError, UsageError  # noqa: E402
from quantrt.model.model import Model  # noqa: E402
from quantrt.runtime.cuda.device.memory_limit import device_memory_limit  # noqa: E402
from quantrt.tactics.cuda import lower  # noqa: E402
from tests.gpu_stand_in import BRIEF, REFERENCE_ALONE, stand_in_for_gpu  # noqa: E402
from tests.limited_memory import LimitedMemory, limited_memory  # noqa: E402
from tests.nets import net, samples, weights  # noqa: E402

LAYERS = 4
SIZE = 512
"""A weight is 1 MB in float32."""


@pytest.fixture(scope="module")
def model() -> Model:
    names = [f"w{number}" for number in range(LAYERS)]
    steps = [f"v{number + 1} = MatMul (v{number}, {name})" for number, name in enumerate(names)]
    text = f"net (float[N,{SIZE}] v0) => (float[N,{SIZE}] v{LAYERS}) {{ {' '.join(steps)} }}"
    return net(text, weights(dict.fromkeys(names, (SIZE, SIZE))))


def config(limit_mb: int | None) -> BuildConfig:
    return BuildConfig(
        precisions=frozenset({"fp32", "fp16", "int8"}),
        assign=AssignConfig(mixed=False),
        bench=replace(BRIEF, batch=2),
        calibration=CalibrationConfig(method="minmax"),
        device=DeviceConfig(device="cuda"),
        cuda=replace(REFERENCE_ALONE, device_memory_mb=limit_mb),
    )


def built(model: Model, limit_mb: int) -> tuple[dict[str, dict], LimitedMemory]:
    """Candidates by name, and the memory they had."""
    with stand_in_for_gpu(), limited_memory() as found:
        engine = build(model, config=config(limit_mb), calibration={"v0": samples(4, SIZE)})
        with engine:
            rows = {row["name"]: row for row in engine.report["candidates"]}
    (memory,) = found
    return rows, memory


def test_candidates_beyond_the_limit_are_rejected_and_the_others_built(model: Model):
    rows, memory = built(model, 8)  # weights of the reference programs take 4, 4 and 1 MB
    assert memory.refusals
    assert 5 << 20 < memory.peak_bytes <= 8 << 20
    assert rows["cuda fp16"]["status"] == "rejected"
    assert "memory" in rows["cuda fp16"]["reason"] or "no room" in rows["cuda fp16"]["reason"]
    assert {rows[name]["status"] for name in ("cuda fp32", "cuda int8+fp16")} == {"shipped", "passed over"}


def test_a_limit_below_the_float_model_says_what_had_no_room(model: Model):
    with pytest.raises(ModelError, match="no library can run this model in FP32") as error:
        built(model, 2)
    assert "no room for weight" in str(error.value.got)
    assert "more --device-memory" in str(error.value.hint)


def test_no_room_to_try_kernels_is_a_reason(model: Model, monkeypatch: pytest.MonkeyPatch):
    def tune(workloads, tactics, **options):
        if any(workload.inputs[0].dtype == "float16" for workload in workloads):
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB. GPU 0 ...")
        return own_tune(workloads, tactics, **options)

    own_tune = lower.tune
    monkeypatch.setattr(lower, "tune", tune)
    with stand_in_for_gpu():
        fp16 = replace(config(None), precisions=frozenset({"fp32", "fp16"}))
        with build(model, config=fp16, calibration={"v0": samples(2, SIZE)}) as engine:
            rows = {row["name"]: row for row in engine.report["candidates"]}
    assert rows["cuda fp16"]["reason"] == "the GPU has no room to try kernels"
    assert rows["cuda fp32"]["status"] == "shipped"


def test_torch_is_bounded_meanwhile_and_not_afterwards(monkeypatch: pytest.MonkeyPatch):
    fractions: list[float] = []
    properties = type("Properties", (), {"total_memory": 80 << 30})
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: properties)
    monkeypatch.setattr(torch.cuda, "set_per_process_memory_fraction", fractions.append)
    with pytest.raises(ModelError), device_memory_limit(24 << 10):
        assert fractions == [24 / 80]
        raise ModelError("whatever")
    assert fractions == [24 / 80, 1.0]
    with pytest.raises(UsageError, match="so much of the GPU's memory"), device_memory_limit(81 << 10):
        pass


@pytest.mark.parametrize("limit_mb", [0, -1])
def test_a_limit_is_positive(limit_mb: int):
    with pytest.raises(UsageError, match="device memory in MB"):
        CudaConfig(device_memory_mb=limit_mb)


def test_a_cpu_has_no_device_memory():
    with pytest.raises(UsageError, match="device memory is a GPU's"):
        BuildConfig(cuda=CudaConfig(device_memory_mb=1))
