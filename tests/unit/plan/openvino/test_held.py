# SPDX-License-Identifier: Apache-2.0
"""OpenVINO models as an engine holds them."""

import numpy as np
import onnx_ir as ir

from quantrt.ir.mapped import in_memory
from quantrt.plan.lower import lower_to_openvino

SUM = """<ir_version: 8, opset_import: ["" : 18]>
    g (float[N,4] x) => (float[N,4] y) <float[4] w = {1, 2, 3, 4}> { y = Add(x, w) }"""
SIGN = """<ir_version: 8, opset_import: ["" : 18]> g (float[N,4] x) => (float[N,4] y) { y = Sign(x) }"""


def test_weights_lie_in_the_file_that_the_library_wrote():
    weights = lower_to_openvino(ir.from_onnx_text(SUM)).weights["bin"]
    assert in_memory(weights) is not weights  # it copies what is mapped alone
    assert np.array_equal(weights.view(np.float32), [1, 2, 3, 4])


def test_there_may_be_none():
    assert lower_to_openvino(ir.from_onnx_text(SIGN)).weights["bin"].size == 0
