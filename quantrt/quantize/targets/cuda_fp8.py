# SPDX-License-Identifier: Apache-2.0
"""QuantRT's own engine on NVIDIA GPUs in FP8 E4M3: whole ranges of activations, weights per channel.

Products with a weight matrix are in FP8: there its tensor cores give twice the rate of float16.
Convolutions are in int8 beside them: cuDNN's fused fp8 graphs were measured no faster than its float16 ones
on an H200, and no kernel of ours reads fp8 pixels. They read codes on the symmetric grid, and sums behind
them stay float, as they are read by norms that want floats anyway; a convolution whose input a product reads
too is float. So nothing of an image is read in fp8.
Embedding tables are int8 codes with a scale for every row: of the same size, and a sixteenth of the step.
"""

from __future__ import annotations

from dataclasses import replace

from quantrt.dtypes import FP8, INT8
from quantrt.quantize.target import Grid, OpRule, Target
from quantrt.quantize.targets.cuda import CUDA, CUDA_MOVERS
from quantrt.regions.expressions.lookup import LARGE_TABLE

__all__ = ["CUDA_FP8"]

LARGEST = 448
"""Of E4M3's numbers."""

VIEWS = ("Reshape", "Flatten", "Squeeze", "Unsqueeze", "Transpose", "Slice")
"""What moves any codes: as bytes, or as new sizes and strides. All other movers are for int8."""

CONVOLUTIONS = ("Conv", "ConvTranspose")

CUDA_FP8 = Target(
    name="cuda fp8",
    activation=Grid(FP8, symmetric=True, qmin=-LARGEST, qmax=LARGEST),
    rules=(
        OpRule("Gemm", (0,), weight=1, weight_axis=1),
        OpRule("MatMul", (0,), weight=1, weight_axis=1),
        OpRule("Gather", (), weight=0, weight_axis=0, least_elements=LARGE_TABLE, weight_dtype=INT8),
        *(
            replace(rule, grid=CUDA.activation, weight_dtype=INT8, zero_point=False)
            for rule in CUDA.rules
            if rule.op_type in CONVOLUTIONS
        ),
        *(rule if rule.op_type in VIEWS else replace(rule, grid=CUDA.activation) for rule in CUDA_MOVERS),
    ),
    codes_of_gates=True,
    weight_dtype=FP8,
    weight_qmax=LARGEST,
)
