# SPDX-License-Identifier: Apache-2.0
"""What a target can run in 8 bits: rules as data, one table per target in `targets/`."""

from __future__ import annotations

from dataclasses import dataclass, replace

from quantrt.dtypes import INT8, DType

__all__ = ["MOVERS", "Grid", "OpRule", "Target", "per_token"]


ONE_SIDED_RATIO = 0.125
"""Up to this ratio of |lo| to hi a symmetric grid would waste nearly one of its eight bits."""

UNEVEN_RATIO = 0.25
"""Up to this ratio a zero point is worth 4 dB of a tensor's noise, 20 lg(2 / (1 + ratio)), where it costs an
addition for each sum at the most."""


PRODUCTS = ("Gemm", "MatMul")


@dataclass(frozen=True)
class Grid:
    """The codes an activation is mapped onto.

    Attributes:
        dtype: the stored type.
        symmetric: zero point fixed at 0 (signed) or at qmin (unsigned).
        qmin, qmax: the codes in use; of floats the least and the largest.
        zero_point_unit: what zero points are multiples of.
    """

    dtype: DType
    symmetric: bool
    qmin: int
    qmax: int
    zero_point_unit: int = 1

    @property
    def levels(self) -> int:
        """How many integers there are."""
        return self.qmax - self.qmin + 1

    @property
    def signed(self) -> bool:
        """Whether codes below zero exist."""
        return self.qmin < 0


@dataclass(frozen=True)
class OpRule:
    """How one operator is quantized.

    Attributes:
        op_type: ONNX name, default domain.
        activations: input indices that must be quantized for an 8-bit kernel.
        weight: index of the input that must be a constant, quantized per `weight_axis`; None for none. A rule
            with a weight and no activations is of a table, whose rows are dequantized as they are read.
        weight_axis: the output-channel axis of the weight; None per tensor.
        bias: index of the bias input; None for none.
        passes: value-preserving: input 0 and the output share one grid, and the op runs on codes.
        only_if_quantized: quantized only where its inputs are so anyway (pools, concatenations).
        behind_product: quantized too where an 8-bit convolution makes its input for it alone.
        output: the output must be quantized too for an 8-bit kernel to be chosen.
        symmetric: its activations use the target's symmetric grid, because zero points cost time here; not
            beside a constant weight, whose sums, which a zero point is multiplied with, are made beforehand;
            of a concatenation along another axis than that of channels.
        zero_point: its kernels read activations with a zero point, of targets whose grids have one only where
            all readers do; of a convolution unless its padding is copied ahead of its products.
        only_nearest: of a resize: only one that moves values without changing them.
        only_spread: of a transposed convolution: only one whose kernel is as large as its stride.
        least_elements: of a table; a smaller one stays float.
        per_token: of a product with a constant weight: each row of its activation has a scale of its own.
        weight_dtype: of the weight's codes; None for the target's.
        grid: of the activations that it reads, or moves; None for the target's, and of what moves any codes.
    """

    op_type: str
    activations: tuple[int, ...] = (0,)
    weight: int | None = None
    weight_axis: int | None = None
    bias: int | None = None
    passes: bool = False
    only_if_quantized: bool = False
    behind_product: bool = False
    output: bool = False
    symmetric: bool = False
    zero_point: bool = False
    only_nearest: bool = False
    only_spread: bool = False
    least_elements: int = 0
    per_token: bool = False
    weight_dtype: DType | None = None
    grid: Grid | None = None


MOVERS = tuple(
    OpRule(op_type, passes=True)
    for op_type in ("MaxPool", "Reshape", "Flatten", "Squeeze", "Unsqueeze", "Transpose", "Slice")
)
"""What moves numbers without changing them, which every target does to codes too."""


@dataclass(frozen=True)
class Target:
    """Placement rules of one runtime.

    Attributes:
        name: "ort", "openvino", "tensorrt", "cuda" or "cuda fp8".
        activation: grid of activations.
        symmetric: grid of activations that a rule wants symmetric; None for the same.
        nonnegative: grid of those of them that are never negative; None for the same.
        one_sided: grid of activations to one side whose readers all take zero points; None for the same.
        rules: one row per operator; an operator without a row stays float.
        residual: which inputs of an Add of two activations are quantized: "both", "skip" (only the branch
            that is not computed by the convolution or product it can be fused with) or "none".
        fuses_activations: a convolution's kernel computes the activation behind it, and a sum behind that.
        int32_bias: the bias is stored as int32 with scale = s_x * s_w; otherwise it stays float32.
        quantizes_outputs: kernels make 8-bit values, which every reader sees as such, for runtimes that match
            DequantizeLinear -> op -> QuantizeLinear.
        row_bytes: codes in rows of no multiple of it are transposed one by one; attention's output is
            quantized behind such a transposition.
        codes_of_gates: weights of squeeze-and-excite gates are codes, for their size: floats multiply them.
        weight_dtype: of the codes of weights.
        weight_qmax: their largest: 127; 63 where the CPU's 16-bit sums could saturate; 448 of FP8.
    """

    name: str
    activation: Grid
    rules: tuple[OpRule, ...]
    symmetric: Grid | None = None
    nonnegative: Grid | None = None
    one_sided: Grid | None = None
    residual: str = "none"
    fuses_activations: bool = False
    int32_bias: bool = False
    quantizes_outputs: bool = False
    row_bytes: int = 1
    codes_of_gates: bool = False
    weight_dtype: DType = INT8
    weight_qmax: int = 127

    def grid_for(self, lo: float, hi: float, *, symmetric: bool) -> Grid:
        """The grid of an activation with values in [lo, hi], which a rule wants symmetric or not.

        A range far to one side, such as a GELU's, keeps its zero point: half of the codes would be unused.
        """
        if self.one_sided is not None:
            return self.one_sided if not symmetric and -lo <= hi * UNEVEN_RATIO else self.activation
        if not symmetric or self.symmetric is None or (lo < 0 and -lo <= hi * ONE_SIDED_RATIO):
            return self.activation
        return self.nonnegative if self.nonnegative is not None and lo >= 0 else self.symmetric

    @property
    def precision(self) -> str:
        """What a model in these codes is said to run in: "int8" or "fp8"."""
        return self.activation.dtype.precision

    def takes(self, rule: OpRule, dtype: DType) -> bool:
        """Whether an operator reads codes of a type, or moves them."""
        if rule.grid is not None:
            return dtype == rule.grid.dtype
        return dtype == self.activation.dtype or (
            rule.passes and any(x.grid is not None and x.grid.dtype == dtype for x in self.rules)
        )

    def precision_of(self, op_type: str) -> str:
        """What an operator that reads codes is said to run in."""
        rule = self.rule(op_type)
        return self.precision if rule is None or rule.grid is None else rule.grid.dtype.precision

    def weight_codes(self, op_type: str) -> tuple[DType, int]:
        """Type and largest code of an operator's weight."""
        rule = self.rule(op_type)
        if rule is None or rule.weight_dtype is None:
            return self.weight_dtype, self.weight_qmax
        return rule.weight_dtype, rule.weight_dtype.qmax or 0

    def rule(self, op_type: str) -> OpRule | None:
        """The row of an operator, or None when the target has no 8-bit form of it."""
        return next((rule for rule in self.rules if rule.op_type == op_type), None)


def per_token(target: Target) -> Target:
    """The target with a scale for each row of what products with a weight read."""
    rows = (replace(rule, per_token=True) if rule.op_type in PRODUCTS else rule for rule in target.rules)
    return replace(target, rules=tuple(rows))
