# SPDX-License-Identifier: Apache-2.0
"""A library's complaint without its source positions."""

import pytest

from quantrt.runtime.error_text import MAX_CHARACTERS, library_reason


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (
            "[ONNXRuntimeError] : 7 : INVALID_PROTOBUF : Failed to load model.",
            "Failed to load model.",
        ),
        (
            "Exception from src/inference/src/cpp/core.cpp:105:\n"
            "Exception from src/inference/src/model_reader.cpp:188:\nUnable to read the model.\n\n",
            "Unable to read the model.",
        ),
        (
            "Check 'a == 1' failed at src/core/x.hpp:26:\nIn node 'y':\nArgument shapes differ.\n",
            "Check 'a == 1' failed; In node 'y':; Argument shapes differ.",
        ),
        ("", "ValueError"),
    ],
)
def test_positions_are_dropped(text: str, reason: str):
    assert library_reason(ValueError(text)) == reason


def test_a_long_complaint_is_cut():
    assert len(library_reason(ValueError("x" * 5000))) == MAX_CHARACTERS
