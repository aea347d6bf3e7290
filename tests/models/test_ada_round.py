# SPDX-License-Identifier: Apache-2.0
"""Adaptive rounding of a trained network: nearer to its floats on pictures that it was not rounded on."""

import numpy as np

from quantrt.calibrate.collect import collect
from quantrt.calibrate.dataset import open_dataset
from quantrt.config import CalibrationConfig, QuantizeConfig
from quantrt.ir.session import float_session
from quantrt.model.load import load_model
from quantrt.quantize.fit.fit import ROUNDED, fit, observe_reference
from quantrt.quantize.qdq.write import write
from quantrt.quantize.quantize import observed_values
from quantrt.quantize.targets.onnxruntime import ORT
from quantrt.reference.metrics import sqnr_db

FIT, UNSEEN = 64, 256


def test_a_trained_network_gains_on_unseen_pictures(shared_data):
    model = load_model(shared_data("models/cifar10_resnet8.onnx"))
    seen, unseen = (
        open_dataset(shared_data(f"images/cifar10_{part}.zip"), model.inputs, preprocess="scale=1")
        for part in ("calibration", "validation")
    )
    plain = QuantizeConfig(equalization=False)
    stats = collect(model, observed_values(model, (ORT,), plain), seen, CalibrationConfig(max_samples=128))
    reference = observe_reference(model, [batch.inputs for batch in seen.batches(8, FIT)], plain)
    (pictures,) = (batch.inputs for batch in unseen.batches(UNSEEN, UNSEEN))
    (wanted,) = float_session(model.graph).run(None, pictures)

    def made(config: QuantizeConfig) -> tuple[str, float]:
        fitted = fit(model, stats, ORT, reference, config=config, calibration=CalibrationConfig())
        (got,) = float_session(write(fitted.model)).run(None, pictures)
        return fitted.method, sqnr_db(wanted, np.asarray(got))

    before, nearest_db = made(plain)
    after, rounded_db = made(QuantizeConfig(equalization=False, adaptive_rounding=True))
    assert after == before + ROUNDED
    assert rounded_db > nearest_db + 0.5
