# SPDX-License-Identifier: Apache-2.0
"""Layers of OpenVINO have the same names whenever the engine is opened."""

import numpy as np
import openvino
from openvino import opset13 as op

from quantrt.runtime.openvino.watch import stable_names


def source(name: str) -> openvino.Model:
    """A model with one operator of this name."""
    x = op.parameter([1], name="x", dtype=np.float32)
    relu = op.relu(x)
    relu.set_friendly_name(name)
    return openvino.Model([relu], [x], "source")


def test_numbers_that_count_on_in_a_process_are_no_part_of_a_name():
    twice = [
        ["FakeQuantize_80", "/conv", "/conv_abcd_acdb_FakeQuantize_801", "FakeQuantize_801"],
        ["FakeQuantize_905", "/conv", "/conv_abcd_acdb_FakeQuantize_911", "FakeQuantize_911"],
    ]
    first, second = (stable_names(names, source("/conv")) for names in twice)
    assert first == second == ["FakeQuantize", "/conv", "/conv_abcd_acdb_FakeQuantize", "FakeQuantize"]


def test_names_of_the_model_stay_as_they_are():
    assert stable_names(["Relu_3", "Relu_4", "/a/Relu_5"], source("Relu_3")) == [
        "Relu_3",
        "Relu",
        "/a/Relu_5",
    ]
