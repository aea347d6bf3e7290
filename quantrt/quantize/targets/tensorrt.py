# SPDX-License-Identifier: Apache-2.0
"""TensorRT, for export: symmetric int8 everywhere, zero points 0, float bias, inputs only.

Of a residual Add only the skip branch is quantized, so that the convolution of the other branch and the Add
fuse (NVIDIA TensorRT developer guide, "Working with quantized types", Q/DQ placement recommendations).
"""

from __future__ import annotations

from quantrt.dtypes import INT8
from quantrt.quantize.target import MOVERS, Grid, OpRule, Target

__all__ = ["TENSORRT"]

TENSORRT = Target(
    name="tensorrt",
    activation=Grid(INT8, symmetric=True, qmin=-128, qmax=127),
    rules=(
        OpRule("Conv", (0,), weight=1, weight_axis=0),
        OpRule("ConvTranspose", (0,), weight=1, weight_axis=1),
        OpRule("Gemm", (0,), weight=1, weight_axis=1),
        OpRule("MatMul", (0, 1), weight=1, weight_axis=1),
        OpRule("Add", (0, 1)),
        OpRule("AveragePool", (0,), only_if_quantized=True),
        OpRule("GlobalAveragePool", (0,), only_if_quantized=True),
        OpRule("Concat", passes=True, only_if_quantized=True),
        *MOVERS,
    ),
    residual="skip",
)
