# SPDX-License-Identifier: Apache-2.0
"""OpenVINO on a CPU: uint8 activations with zero points, int8 weights per channel; attention is symmetric.

Inputs are quantized, outputs are not: the plugin fuses the next layer's quantization into the layer before
(OpenVINO documentation, "Low Precision Transformations").
Embedding tables are codes with a scale for every row, for their size: they take no longer (ir/pick_codes.py).
So are the weights of squeeze-and-excite gates, half of a MobileNetV3-Small's in int8, which are no slower so.
"""

from __future__ import annotations

from quantrt.dtypes import INT8, UINT8
from quantrt.quantize.patterns.tables import SHOWN_TABLE
from quantrt.quantize.target import MOVERS, Grid, OpRule, Target

__all__ = ["OPENVINO"]

_COMPUTE = (
    OpRule("Conv", (0,), weight=1, weight_axis=0),
    OpRule("ConvTranspose", (0,), weight=1, weight_axis=1),
    OpRule("Gemm", (0,), weight=1, weight_axis=1),
    # Zero points cost products of two activations time: ViT-S batch 8 on 2 cores of an AMD EPYC (Zen 4), 140
    # against 118 ms. Products with a constant weight take as long with them, and MiniLM is 1.6 dB better.
    OpRule("MatMul", (0, 1), weight=1, weight_axis=1, symmetric=True),
    OpRule("Gather", (), weight=0, weight_axis=0, least_elements=SHOWN_TABLE),
)

OPENVINO = Target(
    name="openvino",
    activation=Grid(UINT8, symmetric=False, qmin=0, qmax=255),
    rules=(
        *_COMPUTE,
        *MOVERS,
        OpRule("DepthToSpace", passes=True),
        OpRule("Add", (0, 1), symmetric=True),
        OpRule("AveragePool", (0,), only_if_quantized=True),
        OpRule("GlobalAveragePool", (0,), only_if_quantized=True),
        OpRule("Concat", passes=True, only_if_quantized=True, symmetric=True),
    ),
    residual="both",
    codes_of_gates=True,
    symmetric=Grid(INT8, symmetric=True, qmin=-128, qmax=127),
    nonnegative=Grid(UINT8, symmetric=True, qmin=0, qmax=255),
    # Of a vector. Heads of 32 (MiniLM, 128 tokens, one core of an AMD EPYC): transposed as codes 33 us, as
    # floats and then quantized 8.
    row_bytes=64,
)
