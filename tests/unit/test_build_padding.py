# SPDX-License-Identifier: Apache-2.0
"""A whole build without padding, for a GPU for which the CPU stands in."""

from dataclasses import replace

import numpy as np
import pytest

pytest.importorskip("torch", reason="programs run in torch")

from quantrt.build import build
from quantrt.config import AssignConfig, BuildConfig, CalibrationConfig, DeviceConfig
from quantrt.errors import UsageError
from quantrt.plan.program_json import program_from_model
from tests.encoder import encoder, mask_of, token_inputs
from tests.gpu_stand_in import BRIEF, REFERENCE_ALONE, stand_in_for_gpu
from tests.nets import run_ort

CONFIG = BuildConfig(
    assign=AssignConfig(mixed=False),
    precisions=frozenset({"fp32", "fp16", "int8"}),
    bench=BRIEF,
    calibration=CalibrationConfig(method="minmax"),
    device=DeviceConfig(device="cuda"),
    cuda=replace(REFERENCE_ALONE, remove_padding="mask"),
)
SAMPLES = token_inputs(mask_of([12, 7, 3, 9]))


def test_an_engine_leaves_padding_out_at_every_batch_size():
    with stand_in_for_gpu(), build(encoder(), config=CONFIG, calibration=SAMPLES) as engine:
        notes = program_from_model(engine.plan.model).notes["tuning"]
        assert any("padding is removed by 'mask': 1 attentions" in note for note in notes)
        for lengths in ([12, 7, 3, 9], [1, 12], [5]):
            inputs = token_inputs(mask_of(lengths), seed=9)
            found = engine.run(inputs)
            tokens, sentence = run_ort(encoder().graph, inputs)
            kept = inputs["mask"] != 0
            # The budget's 1 % of cosine allows int8 about 17 dB; outputs are norms, of size 1.
            assert np.abs(found["tokens"][kept] - tokens[kept]).mean() < 0.1
            assert not found["tokens"][~kept].any()
            assert np.abs(found["sentence"] - sentence).mean() < 0.1


def test_an_input_that_is_not_there_is_named():
    config = replace(CONFIG, cuda=replace(CONFIG.cuda, remove_padding="attention_mask"))
    with stand_in_for_gpu(), pytest.raises(UsageError, match="'attention_mask'"):
        build(encoder(), config=config, calibration=SAMPLES)
