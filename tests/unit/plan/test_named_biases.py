# SPDX-License-Identifier: Apache-2.0
"""Biases of a record in an engine file: those that the program holds are written once."""

import base64
import json
from dataclasses import replace

import numpy as np
import pytest

from quantrt.errors import ModelError
from quantrt.plan.plan import LibraryModel
from quantrt.plan.program import QUANTIZATION, Program, Step
from quantrt.plan.program_json import program_from_model, program_to_model

HELD = np.asarray([0.5, -1.25, 3.0], np.float32)
OTHER = np.asarray([7.0, 8.0, 9.5], np.float32)


def text(array: np.ndarray) -> str:
    return base64.b64encode(array.tobytes()).decode()


def program(biases: dict[str, str], **weights: np.ndarray) -> Program:
    step = Step("nodes", "r", ("x",), ("y",), weights=tuple(weights))
    notes = {QUANTIZATION: {"biases": biases, "uses": []}, "tuning": []}
    return Program((("x", "float32"),), (("y", "y", "float32"),), (step,), weights, {}, b"", notes)


def in_file(model: LibraryModel) -> dict[str, object]:
    return json.loads(model.graph)["notes"][QUANTIZATION]["biases"]


def test_a_bias_that_the_program_holds_is_named():
    made = program({"conv": text(HELD), "gemm": text(OTHER)}, **{"conv:channels": HELD})
    model = program_to_model(made)
    assert in_file(model) == {"conv": {"array": "conv:channels"}, "gemm": text(OTHER)}
    assert program_from_model(model).notes == made.notes


def test_an_array_that_the_file_holds_as_codes_is_not_named():
    # 2,048 whole numbers in float32 are codes times one scale in the file
    codes = np.resize(np.arange(-127, 128), 2048).astype(np.float32)
    made = program({"conv": text(codes)}, weight=codes)
    model = program_to_model(made)
    assert in_file(model) == {"conv": text(codes)}
    assert program_from_model(model).notes == made.notes


def test_other_types_and_tables_with_the_same_bytes_are_not_named():
    made = program({"conv": text(HELD)}, whole=HELD.view(np.int32), table=HELD[None])
    model = program_to_model(made)
    assert in_file(model) == {"conv": text(HELD)}


def test_notes_without_a_record_stay():
    made = replace(program({}, b=HELD), notes={"tuning": ["x"]})
    assert program_from_model(program_to_model(made)).notes == {"tuning": ["x"]}


def test_a_name_of_no_array_is_damage():
    model = program_to_model(program({"conv": text(HELD)}, bias=HELD))
    damaged = replace(model, graph=model.graph.replace(b'{"array":"bias"}', b'{"array":"bios"}'))
    with pytest.raises(ModelError, match="bios"):
        program_from_model(damaged)
