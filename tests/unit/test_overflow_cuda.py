# SPDX-License-Identifier: Apache-2.0
"""Builds whose halves overflow on samples that were not timed; the CPU stands in for a GPU."""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest

pytest.importorskip("torch", reason="programs run in torch")

from quantrt.build import build
from quantrt.config import AssignConfig, Budget, BuildConfig, CalibrationConfig, DeviceConfig
from quantrt.model.model import Model
from quantrt.plan.program_json import program_from_model
from tests.gpu_stand_in import BRIEF, REFERENCE_ALONE, stand_in_for_gpu
from tests.made_up_times import made_up_times
from tests.nets import net, samples, weights

NET = """far (float[N,12] x) => (float[N,6] y) {
  a = MatMul(x, w0)
  wide = MatMul(a, w1)
  c = MatMul(wide, w2)
  y = MatMul(c, w3)
}"""

USUAL = samples(24, 12)
FAR = USUAL.copy()
FAR[20] *= 500.0  # neither among the samples that are timed nor among those of the calibration

CONFIG = BuildConfig(
    precisions=frozenset({"fp32", "fp16"}),
    bench=BRIEF,
    calibration=CalibrationConfig(method="minmax"),
    device=DeviceConfig(device="cuda"),
    cuda=REFERENCE_ALONE,
    budget=Budget(metric="sqnr", max_drop_ratio=1e-4),
)


@pytest.fixture(autouse=True)
def stand_in() -> Iterator[None]:
    with stand_in_for_gpu(), made_up_times():
        yield


@pytest.fixture
def model() -> Model:
    """One value is about 500 times as large as all others."""
    arrays = weights({"w0": (12, 40), "w1": (40, 40), "w2": (40, 40), "w3": (40, 6)})
    arrays["w1"] *= 500
    arrays["w2"] /= 500
    return net(NET, arrays)


def test_what_overflows_on_other_samples_is_stored_in_fp32(model: Model):
    with build(model, config=CONFIG, calibration={"x": USUAL}, validation={"x": FAR}) as engine:
        assert engine.report["verdict"]["shipped"] == "cuda fp16"
        got = engine.run({"x": FAR})["y"]
        regions = program_from_model(engine.plan.model).notes["regions"].values()
    assert np.isfinite(got).all()
    stored = {name: dtype for row in regions for name, dtype, *_ in row["outputs"]}
    assert stored["wide"] == "float32"
    assert stored["a"] == stored["c"] == "float16"


def test_nothing_is_made_again_where_nothing_overflows(model: Model):
    events: list[str] = []
    build(
        model,
        config=CONFIG,
        calibration={"x": USUAL},
        validation={"x": USUAL},
        on_event=lambda event: events.append(event.stage),
    ).close()
    assert "checking" in events
    assert "finding overflows" not in events


def test_codes_beside_halves_are_mended_and_mixed(model: Model):
    config = replace(CONFIG, precisions=frozenset({"fp32", "int8"}), assign=AssignConfig(assign_rounds=3))
    with build(model, config=config, calibration={"x": USUAL}, validation={"x": FAR}) as engine:
        rows = {row["name"]: row for row in engine.report["candidates"]}
        got = engine.run({"x": FAR})["y"]
        shipped = engine.report["verdict"]["shipped"]
    assert np.isfinite(got).all()
    assert shipped in ("cuda fp16", "cuda int8+fp16 mixed")
    assert rows["cuda int8+fp16"]["status"] == "over budget"  # a sample that no range was for is clipped


def test_what_is_beyond_fp32_too_is_left_as_it_is(model: Model):
    beyond = FAR.copy()
    beyond[20] = np.finfo(np.float32).max
    with build(model, config=CONFIG, calibration={"x": USUAL}, validation={"x": beyond}) as engine:
        assert engine.report["verdict"]["shipped"] == "cuda fp16"
