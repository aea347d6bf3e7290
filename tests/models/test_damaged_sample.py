# SPDX-License-Identifier: Apache-2.0
"""One damaged pixel among the calibration pictures of a trained network."""

import numpy as np

from quantrt.calibrate.dataset import open_dataset
from quantrt.calibrate.unlike import without_unlike
from quantrt.config import CalibrationConfig, QuantizeConfig
from quantrt.ir.session import float_session
from quantrt.model.load import load_model
from quantrt.quantize.fit.fit import fit
from quantrt.quantize.fit.observe import observe
from quantrt.quantize.qdq.write import write
from quantrt.quantize.quantize import observed_values
from quantrt.quantize.targets.onnxruntime import ORT
from quantrt.reference.metrics import sqnr_db

COUNT, DAMAGED, UNSEEN = 128, 41, 128


def test_the_network_is_as_good_as_without_that_picture(shared_data):
    model = load_model(shared_data("models/cifar10_resnet20.onnx"))
    pictures = open_dataset(
        shared_data("images/cifar10_calibration.zip"), model.inputs, preprocess="mean=imagenet"
    )
    (name,) = (spec.name for spec in model.inputs)
    first = next(iter(pictures.batches(COUNT + UNSEEN, COUNT + UNSEEN))).inputs[name]
    x, judged = first[:COUNT].copy(), {name: first[COUNT:]}
    (wanted,) = float_session(model.graph).run(None, judged)
    config, options = QuantizeConfig(equalization=False), CalibrationConfig()

    def judged_db(samples: np.ndarray, *, is_looked_at: bool) -> float:
        data = open_dataset({name: samples}, model.inputs)
        data = without_unlike(data) if is_looked_at else data
        stats, reference = observe(model, observed_values(model, (ORT,), config), data, config, options)
        made = fit(model, stats, ORT, reference, config=config, calibration=options)
        (got,) = float_session(write(made.model)).run(None, judged)
        return sqnr_db(wanted, np.asarray(got))

    whole = judged_db(np.delete(x, DAMAGED, axis=0), is_looked_at=True)
    x[DAMAGED, 0, 5, 5] = 1e4
    (told,) = without_unlike(open_dataset({name: x}, model.inputs)).remarks
    assert f"sample {DAMAGED} ('{name}' reaches 1e+04, others 2.6" in told
    assert judged_db(x, is_looked_at=True) == whole > 25
    assert judged_db(x, is_looked_at=False) < whole - 10
