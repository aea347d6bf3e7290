# SPDX-License-Identifier: Apache-2.0
"""Nodes of ONNX Runtime have the same names whenever the engine is opened."""

import pytest

from quantrt.runtime.onnxruntime.watch import stable_name


@pytest.mark.parametrize(
    ("name", "op_type", "want"),
    [
        ("ReorderOutput_token_12", "ReorderOutput", "ReorderOutput"),
        ("ReorderOutput_token_", "ReorderOutput", "ReorderOutput_token_"),
        ("/conv_token_4", "Conv", "/conv_token_4"),
        ("Conv_token_4_nchwc", "Conv", "Conv_token_4_nchwc"),
        ("", "Relu", ""),
    ],
)
def test_a_number_that_sessions_deal_out_anew_is_no_part_of_a_name(name: str, op_type: str, want: str):
    assert stable_name(name, op_type) == want
