# SPDX-License-Identifier: Apache-2.0
"""QuantRT's own engine on NVIDIA GPUs: symmetric int8, zero points 0, float bias, weights per channel.

Products read codes; what they write is decided by who reads it, since every epilogue can store floats and
codes at once. Of a residual sum the skip branch is read as codes and the other is still in the accumulator
(NVIDIA TensorRT developer guide, "Working with quantized types": an unquantized skip branch costs the gain).
Means over windows and whole images read codes where the products beside them do, or where they alone read
what a convolution makes: no floats need be written.
Grouped convolutions do a few multiplications per byte and stay float unless they are timed faster.
Embedding tables are codes with a scale for every row, for their size: their rows are read as fast as halves.
"""

from __future__ import annotations

from quantrt.dtypes import INT8
from quantrt.quantize.target import Grid, OpRule, Target
from quantrt.regions.lookup import LARGE_TABLE

__all__ = ["CUDA", "MOVERS"]

MOVERS = (
    OpRule("Concat", passes=True),
    OpRule("MaxPool", passes=True),
    OpRule("Resize", passes=True, only_nearest=True),
    OpRule("Reshape", passes=True),
    OpRule("Flatten", passes=True),
    OpRule("Squeeze", passes=True),
    OpRule("Unsqueeze", passes=True),
    OpRule("Transpose", passes=True),
    OpRule("Slice", passes=True),
)

CUDA = Target(
    name="cuda",
    activation=Grid(INT8, symmetric=True, qmin=-128, qmax=127),
    rules=(
        OpRule("Conv", (0,), weight=1, weight_axis=0),
        OpRule("ConvTranspose", (0,), weight=1, weight_axis=1, only_spread=True),
        OpRule("Gemm", (0,), weight=1, weight_axis=1),
        OpRule("MatMul", (0,), weight=1, weight_axis=1),
        OpRule("Gather", (), weight=0, weight_axis=0, least_elements=LARGE_TABLE),
        OpRule("Add", (0, 1)),
        OpRule("AveragePool", only_if_quantized=True),
        OpRule("GlobalAveragePool", only_if_quantized=True, behind_product=True),
        OpRule("ReduceMean", (), only_if_quantized=True, behind_product=True),
        *MOVERS,
    ),
    residual="skip",
    fuses_activations=True,
)
