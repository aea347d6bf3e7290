# SPDX-License-Identifier: Apache-2.0
"""Products of ONNX Runtime's own: with transposes, a factor, a bias, an activation, or channels last.

    FusedMatMul, TransposeMatMul    alpha * A^T B^T, over batches in another order where told
    FusedMatMulActivation           the same, then an activation
    FusedGemm, GemmFastGelu         Gemm, then an activation
    FusedConv                       Conv + Z, then an activation
    NhwcConv                        Conv of images with channels last, weights [M, kH, kW, C / groups]
    BiasSoftmax                     Softmax(x + bias)
    MatMulIntegerToFloat            (A - za)(B - zb) * sa * sb + bias
    DynamicQuantizeMatMul           the same of A in codes that its own range gives

Source: onnxruntime, docs/ContribOperators.md.
"""

from __future__ import annotations

import onnx_ir as ir

from quantrt.ir.edit import constant_of
from quantrt.model.contrib.activations import activated, fast_gelu_of
from quantrt.model.contrib.writer import NoSpellingError, Writer

__all__ = [
    "spell_bias_softmax",
    "spell_dynamic_quantize_matmul",
    "spell_fused_conv",
    "spell_fused_gemm",
    "spell_fused_matmul",
    "spell_gemm_fast_gelu",
    "spell_matmul_integer_to_float",
    "spell_nhwc_conv",
]

_CONV = ("auto_pad", "dilations", "group", "kernel_shape", "pads", "strides")
_GEMM = ("alpha", "beta", "transA", "transB")
_FLOAT = int(ir.DataType.FLOAT)


def spell_fused_matmul(w: Writer) -> None:
    """Write FusedMatMul, TransposeMatMul or FusedMatMulActivation."""
    a, b = (_turned(w, w.need(index, which), which) for index, which in enumerate("AB"))
    product, alpha = w.op("MatMul", a, b), w.float_of("alpha", 1.0)
    if alpha != 1.0:
        product = w.op("Mul", product, w.number(alpha, "alpha"))
    w.put({0: activated(w, product, _numbers(w))})


def spell_fused_gemm(w: Writer) -> None:
    """Write FusedGemm."""
    operands = [w.need(0, "A"), w.need(1, "B"), w.input(2)]
    product = w.op("Gemm", *operands, **w.copied(*_GEMM))
    w.put({0: activated(w, product, _numbers(w))})


def spell_gemm_fast_gelu(w: Writer) -> None:
    """Write GemmFastGelu."""
    product, bias = w.op("MatMul", w.need(0, "X"), w.need(1, "W")), w.input(2)
    w.put({0: fast_gelu_of(w, product if bias is None else w.op("Add", product, bias))})


def spell_fused_conv(w: Writer) -> None:
    """Write FusedConv."""
    y = w.op("Conv", w.need(0, "X"), w.need(1, "W"), w.input(2), **w.copied(*_CONV))
    addend = w.input(3)
    if addend is not None:
        y = w.op("Add", y, addend)
    given = w.node.attributes.get("activation_params")
    w.put({0: activated(w, y, () if given is None else tuple(given.as_floats()))})


def spell_nhwc_conv(w: Writer) -> None:
    """Write NhwcConv."""
    image = w.op("Transpose", w.need(0, "X"), perm=(0, 3, 1, 2))
    weight = w.op("Transpose", w.need(1, "W"), perm=(0, 3, 1, 2))
    y = w.op("Conv", image, weight, w.input(2), **w.copied(*_CONV))
    w.put({0: w.op("Transpose", y, perm=(0, 2, 3, 1))})


def spell_bias_softmax(w: Writer) -> None:
    """Write BiasSoftmax."""
    x, axis = w.need(0, "data"), w.int_of("axis", 1)
    if axis not in (-1, w.rank(x) - 1):
        raise NoSpellingError(f"its axis is {axis}, not the last")
    bias = w.need(1, "bias")
    if w.rank(bias) != w.rank(x) and w.rank(bias) > 1:
        raise NoSpellingError("its bias has other axes than its data")
    w.put({0: w.op("Softmax", w.op("Add", x, bias), axis=-1)})


def spell_matmul_integer_to_float(w: Writer) -> None:
    """Write MatMulIntegerToFloat."""
    sums = w.op("MatMulInteger", w.need(0, "A"), w.need(1, "B"), w.input(4), w.input(5))
    scale = w.op("Mul", w.need(2, "a_scale"), w.need(3, "b_scale"))
    w.put({0: _in_floats(w, sums, scale, w.input(6))})


def spell_dynamic_quantize_matmul(w: Writer) -> None:
    """Write DynamicQuantizeMatMul."""
    codes, scale, zero = w.ops("DynamicQuantizeLinear", w.need(0, "A"), outputs=3)
    sums = w.op("MatMulInteger", codes, w.need(1, "B"), zero, w.input(3))
    w.put({0: _in_floats(w, sums, w.op("Mul", scale, w.need(2, "b_scale")), w.input(4))})


def _in_floats(w: Writer, sums: ir.Value, scale: ir.Value, bias: ir.Value | None) -> ir.Value:
    y = w.op("Mul", w.op("Cast", sums, to=_FLOAT), scale)
    return y if bias is None else w.op("Add", y, bias)


def _turned(w: Writer, value: ir.Value, which: str) -> ir.Value:
    """A factor with its axes as the product wants them."""
    is_last, is_batch = w.int_of(f"trans{which}"), w.int_of(f"transBatch{which}")
    if not is_last and not is_batch:
        return value
    order = list(range(w.rank(value)))
    if is_batch:  # [M, batches, K] -> [batches, M, K]
        order = [*order[1:-1], order[0], order[-1]]
    if is_last and len(order) > 1:
        order[-2:] = order[-1], order[-2]
    array = constant_of(value)
    if array is not None:
        return w.constant(array.transpose(order), which)
    return w.op("Transpose", value, perm=tuple(order))


def _numbers(w: Writer) -> dict[str, float]:
    """Parameters of an activation that are attributes: the first and second are called alpha and beta."""
    found = {"leaky_relu_alpha": "alpha", "activation_alpha": "alpha", "activation_beta": "beta"}
    numbers = {short: w.float_of(name, 0.0) for name, short in found.items() if name in w.node.attributes}
    if "activation_gamma" in w.node.attributes:
        numbers["gamma"] = w.float_of("activation_gamma", 0.0)
    return numbers
