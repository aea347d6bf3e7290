# SPDX-License-Identifier: Apache-2.0
"""ONNX Runtime on a CPU: uint8 activations, int8 weights per channel, int32 bias, outputs quantized.

An integer convolution is chosen only for DequantizeLinear -> Conv -> QuantizeLinear, so outputs are
quantized after the activation, and every reader of what such a kernel makes sees the quantized value.
u8 x s8 is the fast pair with VNNI; s8 x s8 is slower than FP32 (onnxruntime.ai, "Quantize ONNX models").
Embedding tables are codes with a scale for every row, for their size: they take no longer (ir/pick_codes.py).
So are the weights of squeeze-and-excite gates, of which floats are made as it loads
(plan/onnxruntime/stored_weights.py).
"""

from __future__ import annotations

from quantrt.dtypes import INT8, UINT8
from quantrt.quantize.patterns.tables import SHOWN_TABLE
from quantrt.quantize.target import MOVERS, Grid, OpRule, Target

__all__ = ["ORT"]

ORT = Target(
    name="ort",
    activation=Grid(UINT8, symmetric=False, qmin=0, qmax=255),
    rules=(
        OpRule("Conv", (0,), weight=1, weight_axis=0, bias=2, output=True),
        OpRule("Gemm", (0,), weight=1, weight_axis=1, bias=2),
        OpRule("MatMul", (0,), weight=1, weight_axis=1),
        # No sums to saturate: all of int8 on every CPU.
        OpRule("Gather", (), weight=0, weight_axis=0, least_elements=SHOWN_TABLE, weight_dtype=INT8),
        OpRule("Add", (0, 1), only_if_quantized=True, output=True),
        OpRule("AveragePool", (0,), only_if_quantized=True, output=True),
        OpRule("GlobalAveragePool", (0,), only_if_quantized=True, output=True),
        OpRule("Concat", passes=True, only_if_quantized=True),
        *MOVERS,
    ),
    residual="both",
    int32_bias=True,
    quantizes_outputs=True,
    codes_of_gates=True,
)
