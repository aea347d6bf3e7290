# SPDX-License-Identifier: Apache-2.0
"""Bias correction of a trained speech detector: it costs decibels, which calibration samples show."""

import wave

import numpy as np
import pytest

from quantrt.calibrate.dataset import open_dataset
from quantrt.config import CalibrationConfig, QuantizeConfig
from quantrt.ir.session import float_session
from quantrt.model.load import load_model
from quantrt.quantize.fit.fit import NOT_CORRECTED, Fitted, fit
from quantrt.quantize.fit.observe import observe
from quantrt.quantize.qdq.write import write
from quantrt.quantize.quantize import observed_values, with_weights
from quantrt.quantize.targets.onnxruntime import ORT
from quantrt.reference.metrics import Error

CONTEXT, FRAME = 64, 512
CALIBRATION, JUDGED = slice(1, 937, 2), slice(937, 1337)


@pytest.fixture(scope="module")
def frames(shared_data) -> list[dict[str, np.ndarray]]:
    """A minute of speech in steps, each with the state that FP32 reached."""
    with wave.open(str(shared_data("audio/silero_test.wav")), "rb") as file:
        sound = np.frombuffer(file.readframes(file.getnframes()), "<i2").astype(np.float32) / 32768
    sound = np.concatenate([np.zeros(CONTEXT, np.float32), sound])
    session = float_session(load_model(shared_data("models/silero_vad_16k_op15.onnx")).graph)
    state, found = np.zeros((2, 1, 128), np.float32), []
    for start in range(0, len(sound) - CONTEXT - FRAME, FRAME):
        step = sound[None, start : start + CONTEXT + FRAME]
        found.append({"input": step, "state": state, "sr": np.array(16000, np.int64)})
        (state,) = session.run(["stateN"], found[-1])
    return found


def test_a_correction_that_a_speech_detector_loses_by_is_dropped(shared_data, frames):
    model = load_model(shared_data("models/silero_vad_16k_op15.onnx"))
    config, options = QuantizeConfig(equalization=False), CalibrationConfig()
    data = open_dataset(frames[CALIBRATION], model.inputs)
    stats, reference = observe(model, observed_values(model, (ORT,), config), data, config, options)
    made = fit(model, stats, ORT, reference, config=config, calibration=options)
    assert made.method.endswith(NOT_CORRECTED)
    assert any("biases are not corrected" in note for note in made.model.notes)
    corrected = with_weights(made.model, made.model.weights, model.graph, reference.means)
    judged = frames[JUDGED]
    assert speech_db(made, model, judged) > speech_db(Fitted(corrected, "", {}), model, judged) + 1.0


def speech_db(made: Fitted, model, judged) -> float:
    """SQNR of the probability of speech."""
    floats, error = float_session(model.graph), Error()
    session = float_session(write(made.model))
    for step in judged:
        error.add(floats.run(["output"], step)[0], session.run(["output"], step)[0])
    return error.sqnr_db
