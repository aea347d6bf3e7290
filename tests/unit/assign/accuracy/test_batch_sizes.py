# SPDX-License-Identifier: Apache-2.0
"""An engine that is right at one batch size and wrong at another, on made-up engines."""

import numpy as np

from quantrt.assign.accuracy.batch_sizes import Trial, trials, why_wrong
from quantrt.errors import DataError
from quantrt.ir.profile import Profile, ShapeRange

X = {"x": np.arange(1.0, 33.0, dtype=np.float32).reshape(8, 4)}
TRIAL = Trial(X, (1, 2, 4, 3, 16))


def floats(inputs):
    return {"y": inputs["x"] * 2.0, "index": inputs["x"].argmax(1)}


def int8(inputs):
    """Right everywhere: an error of 1 % that has nothing to do with the batch."""
    return {"y": inputs["x"] * 2.02, "index": inputs["x"].argmin(1)}


def fault(run, float_run=floats) -> str | None:
    return why_wrong(run, float_run, TRIAL, int8(X))


def test_an_engine_that_does_not_depend_on_the_batch_is_right_and_costs_no_float_run():
    def unwanted(inputs):
        raise AssertionError("the float model is not needed")

    assert fault(int8, unwanted) is None


def test_zeros_at_one_batch_are_told_with_their_noise():
    text = fault(lambda inputs: {"y": int8(inputs)["y"] * (len(inputs["x"]) != 4)})
    assert text == ("its outputs are wrong at batch 4: 0.0 dB beside the float model, and 40.0 dB at batch 8")
    text = fault(lambda inputs: {"y": int8(inputs)["y"] + (np.nan if len(inputs["x"]) == 3 else 0)})
    assert text is not None and "wrong at batch 3: nan dB" in text


def test_noise_of_another_kernel_is_none():
    rounded = {4: 1.019, 2: 1.02}

    def run(inputs):
        return {"y": inputs["x"] * 2.0 * rounded.get(len(inputs["x"]), 1.01)}

    assert fault(run) is None, "as far from the float model as at the usual batch, to the other side"


def test_models_that_mix_samples_and_mask_with_infinities_are_right():
    def mixed(inputs):
        y = inputs["x"] - inputs["x"].mean(0)
        return {"y": np.concatenate([y, np.full((len(y), 1), -np.inf, np.float32)], 1)}

    def rounded(inputs):
        return {"y": mixed(inputs)["y"] * np.float32(1.01)}

    assert why_wrong(rounded, mixed, TRIAL, rounded(X)) is None


def test_a_size_that_one_engine_refuses_is_a_fault_and_one_that_the_model_refuses_is_none():
    def refuse(run, size: int):
        def refusing(inputs):
            if len(inputs["x"]) == size:
                raise DataError("no such shape")
            return run(inputs)

        return refusing

    assert fault(refuse(int8, 2)) == "it does not run at batch 2: no such shape"
    assert fault(refuse(int8, 2), refuse(floats, 2)) is None


def test_what_is_tried():
    (usual,) = trials({"x": X["x"][:3]}, 8, ())
    assert usual.inputs["x"].shape == (8, 4) and usual.sizes == (1, 2, 4, 3)
    assert np.array_equal(usual.inputs["x"][3:6], X["x"][:3])
    profiles = [
        Profile({"x": ShapeRange((1, 4), (8, 6), (32, 8))}),
        Profile({"x": ShapeRange((2, 4), (2, 4), (2, 4))}),
    ]
    first, second = trials(X, 8, profiles)
    assert first.inputs["x"].shape == (8, 6) and first.sizes == (1, 4, 8, 20, 32)
    assert second.inputs["x"].shape == (2, 4) and second.sizes == (2,)
