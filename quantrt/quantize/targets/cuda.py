# SPDX-License-Identifier: Apache-2.0
"""QuantRT's own engine on NVIDIA GPUs: int8, float bias, weights per channel.

Zero points are 0, but for activations to one side that no padded convolution of many channels reads: they
would use little more than half of the codes. There a zero point is even, so that it can be added before codes
are rounded.

Products read codes; what they write is decided by who reads it, since every epilogue can store floats and
codes at once. Of a residual sum the skip branch is read as codes and the other is still in the accumulator
(NVIDIA TensorRT developer guide, "Working with quantized types": an unquantized skip branch costs the gain).
Means over windows and whole images read codes where the products beside them do, or where they alone read
what a convolution makes: no floats need be written.
Grouped convolutions do a few multiplications per byte and stay float unless they are timed faster.
Embedding tables are codes with a scale for every row, for their size: their rows are read as fast as halves.
So are the weights of squeeze-and-excite gates, which are a quarter of a MobileNetV3's.
"""

from __future__ import annotations

from quantrt.dtypes import INT8
from quantrt.quantize.target import MOVERS, Grid, OpRule, Target
from quantrt.quantize.targets.zero_points import ZERO_POINT_UNIT
from quantrt.regions.expressions.lookup import LARGE_TABLE

__all__ = ["CUDA", "CUDA_MOVERS"]

CUDA_MOVERS = (
    OpRule("Concat", passes=True),
    OpRule("Resize", passes=True, only_nearest=True),
    *MOVERS,
)

CUDA = Target(
    name="cuda",
    activation=Grid(INT8, symmetric=True, qmin=-128, qmax=127),
    one_sided=Grid(INT8, symmetric=False, qmin=-128, qmax=127, zero_point_unit=ZERO_POINT_UNIT),
    rules=(
        OpRule("Conv", (0,), weight=1, weight_axis=0, zero_point=True),
        OpRule("ConvTranspose", (0,), weight=1, weight_axis=1, only_spread=True),
        OpRule("Gemm", (0,), weight=1, weight_axis=1, zero_point=True),
        OpRule("MatMul", (0,), weight=1, weight_axis=1, zero_point=True),
        OpRule("Gather", (), weight=0, weight_axis=0, least_elements=LARGE_TABLE),
        OpRule("Add", (0, 1), zero_point=True),
        OpRule("AveragePool", only_if_quantized=True, zero_point=True),
        OpRule("GlobalAveragePool", only_if_quantized=True, behind_product=True, zero_point=True),
        OpRule("ReduceMean", (), only_if_quantized=True, behind_product=True, zero_point=True),
        *CUDA_MOVERS,
    ),
    residual="skip",
    fuses_activations=True,
    codes_of_gates=True,
)
