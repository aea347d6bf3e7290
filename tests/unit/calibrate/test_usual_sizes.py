# SPDX-License-Identifier: Apache-2.0
"""Without data a model is run at the usual sizes, or at the largest that it has positions for."""

import numpy as np
import pytest

from quantrt.build import build
from quantrt.calibrate import usual_sizes
from quantrt.calibrate.usual_sizes import made_up_data, runnable_inputs
from quantrt.config import BindingConfig, BuildConfig, CalibrationConfig, CudaConfig, DeviceConfig
from quantrt.model.model import Model
from quantrt.qdq_model.make import quantize_model
from tests.gpu_stand_in import BRIEF, REFERENCE_ALONE, stand_in_for_gpu
from tests.nets import net, weights

SLICED = """
    start = Constant<value_ints = [0]> () length = Shape<start = 1> (ids)
    q = Slice(p, start, length, start)"""
COUNTED = """
    zero = Constant<value_int = 0> () one = Constant<value_int = 1> ()
    sizes = Shape(ids) length = Gather(sizes, one) r = Range(zero, length, one) q = Gather(p, r)"""


def texts(positions: str, rows: int) -> Model:
    """Token embeddings plus those of positions, of which there are some rows."""
    text = f"""net (int64[N,S] ids) => (float[N,S,16] y) {{
        t = Gather(e, ids) {positions} x = Add(t, q) y = MatMul(x, w) }}"""
    return net(text, weights({"e": (500, 16), "p": (rows, 16), "w": (16, 16)}), opset=18)


@pytest.mark.parametrize(
    ("positions", "rows", "size"),
    [(SLICED, 48, 48), (COUNTED, 48, 48), (SLICED, 200, "S"), (COUNTED, 5, 5), (COUNTED, 128, "S")],
)
def test_texts_are_as_long_as_there_are_positions(positions: str, rows: int, size: int | str):
    (spec,) = runnable_inputs(texts(positions, rows))
    assert spec.shape == ("N", size)


def test_positions_that_begin_later_leave_room_for_fewer_tokens():
    offset = "two = Constant<value_int = 2> () r = Add(two, k) q = Gather(p, r)"
    counted = COUNTED.replace("r = Range", "k = Range").replace("q = Gather(p, r)", offset)
    (spec,) = runnable_inputs(texts(counted, 50))
    assert spec.shape == ("N", 32)


def test_a_model_without_short_tables_is_not_run(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(usual_sizes, "float_session", None)
    model = texts(SLICED, 512)
    assert runnable_inputs(model) == model.inputs


def test_a_model_that_runs_at_no_size_is_left_as_it_is(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(usual_sizes, "_runs", lambda graph, session, specs: False)
    model = texts(COUNTED, 48)
    assert runnable_inputs(model) == model.inputs


def test_random_samples_have_these_sizes():
    batch = next(made_up_data(texts(COUNTED, 48), 2, 0).batches(2, 2))
    assert batch.inputs["ids"].shape == (2, 48)


@pytest.mark.parametrize("device", ["cpu", "cuda"])
@pytest.mark.parametrize("types", [(), ("int32",)])
def test_such_a_model_is_built_without_data(device: str, types: tuple[str, ...]):
    config = BuildConfig(
        precisions=frozenset({"fp32", "int8"}),
        calibration=CalibrationConfig(calib_random=True, max_samples=4),
        device=DeviceConfig(device=device, libraries=("onnxruntime",)),
        cuda=REFERENCE_ALONE if device == "cuda" else CudaConfig(),
        bindings=BindingConfig(input_types=types),
        bench=BRIEF,
    )
    with stand_in_for_gpu(), build(texts(COUNTED, 48), config=config) as engine:
        assert engine.report["timed_shapes"] == {"ids": [1, 48]}
        assert engine.run({"ids": np.zeros((2, 9), engine.inputs[0].dtype)})["y"].shape == (2, 9, 16)


def test_such_a_model_is_quantized_without_data():
    config = BuildConfig(calibration=CalibrationConfig(calib_random=True, max_samples=2))
    assert quantize_model(texts(COUNTED, 48), config=config).quantized.weights
