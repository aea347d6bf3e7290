# SPDX-License-Identifier: Apache-2.0
"""Quantized operators of ONNX Runtime's own, as its quantizer writes them, become standard ones.

    QLinearAdd, QLinearSigmoid, QGemm, ...      DequantizeLinear -> operator -> QuantizeLinear
    QuantizeLinear, DequantizeLinear            the standard's, at opset 21 where they have 16 or 4 bits
    MatMulNBits                                 MatMul by a DequantizeLinear of codes in blocks, at opset 21

What their documentation (onnxruntime, docs/ContribOperators.md) says of each is computed in floats, between
the same roundings. Forms that no quantizer writes (computed weights, other layouts) stay as they are.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import ml_dtypes
import numpy as np
import onnx_ir as ir

from quantrt.ir.edit import add_constant, constant_of, float_attribute, int_attribute
from quantrt.ir.sources import SOURCES_KEY, sources_of
from quantrt.model.contrib.writer import Writer
from quantrt.model.passes.spell.raise_opset import NARROW_OPSET, raise_opset, why_not_raised

__all__ = ["has_code_spelling", "spell_codes"]

Array = np.ndarray[Any, Any]

WIDE = (ir.DataType.INT8, ir.DataType.UINT8, ir.DataType.INT32)
"""Codes that the standard's own operators have had from opset 10 on."""

AXIS_OPSET = 13
"""The first opset with scales along an axis."""

BLOCKED = (2, 4, 8)
"""Bits of MatMulNBits whose codes the standard can hold; 2 are widened to 4."""


def has_code_spelling(op_type: str) -> bool:
    """Whether an operator of that domain is one of these."""
    return op_type in _SPELLINGS


def spell_codes(graph: ir.Model, node: ir.Node, taken: set[str]) -> bool:
    """Replace one node of the main graph; False where its form is not known, and it stays.

    Args:
        taken: as of Writer.
    """
    speller = _Speller(graph, node, taken)
    if _SPELLINGS[node.op_type](speller):
        return True
    speller.forget()
    return False


class _Speller(Writer):
    """Writes pairs around standard nodes, which keep the name of the node that they stand for."""

    def add(
        self,
        op_type: str,
        inputs: Sequence[ir.Value | None],
        what: str,
        attributes: dict[str, Any] | None = None,
    ) -> ir.Value:
        """A new node called after the node it stands for."""
        name = f"{self.node.name}_{what}" if what else self.node.name
        made = ir.node(op_type, list(inputs), attributes=attributes or {}, name=name)
        made.outputs[0].name = f"{self.node.outputs[0].name}_{what or 'float'}"
        made.outputs[0].type = ir.TensorType(ir.DataType.FLOAT)
        made.metadata_props[SOURCES_KEY] = "\n".join(sources_of(self.node))
        self._made.append(made)
        return made.outputs[0]

    def dequantized(self, index: int, what: str, axis: int | None = None) -> ir.Value | None:
        """The floats of a triple (codes, scale, zero point) that starts at an input.

        None where its scales need an axis and there is none.
        """
        codes, scale, zero = (self.input(index + part) for part in range(3))
        if codes is None or scale is None:
            return None
        array = constant_of(scale)
        is_row = array is not None and array.size > 1
        if is_row and (axis is None or self.graph.opset_imports.get("", 0) < AXIS_OPSET):
            return None
        attributes = {"axis": axis} if is_row else {}
        value = self.add("DequantizeLinear", [codes, self.scalar(scale), self.scalar(zero)], what, attributes)
        value.shape = codes.shape
        return value

    def scalar(self, value: ir.Value | None) -> ir.Value | None:
        """A scale or zero point; one of a single element in the shape of a scalar."""
        array = constant_of(value)
        if value is None or array is None or array.size != 1 or array.ndim == 0:
            return value
        return add_constant(self.graph, f"{value.name}_scalar", array.reshape(()), self._taken)

    def quantized(self, value: ir.Value, scale_index: int) -> bool:
        """End with codes of a value on the grid of two inputs."""
        scale, zero = self.input(scale_index), self.input(scale_index + 1)
        result = self.node.outputs[0]
        value.shape = result.shape
        codes = self.add("QuantizeLinear", [value, self.scalar(scale), self.scalar(zero)], "quantize")
        return self.replace(codes)

    def replace(self, value: ir.Value) -> bool:
        """Put what was made in the place of the node; `value` becomes its result."""
        self.put({0: value})
        return True


def _binary(op_type: str) -> Callable[[_Speller], bool]:
    def spell(speller: _Speller) -> bool:
        one, other = speller.dequantized(0, "first"), speller.dequantized(3, "second")
        if one is None or other is None:
            return False
        return speller.quantized(speller.add(op_type, [one, other], ""), 6)

    return spell


def _unary(op_type: str, *attributes: str) -> Callable[[_Speller], bool]:
    def spell(speller: _Speller) -> bool:
        x = speller.dequantized(0, "input")
        if x is None or int_attribute(speller.node, "channels_last", 0):
            return False
        return speller.quantized(speller.add(op_type, [x], "", speller.copied(*attributes)), 3)

    return spell


def _softmax(speller: _Speller) -> bool:
    """Along one axis, as from opset 13 on; before, all axes behind it were one."""
    if min(int_attribute(speller.node, "opset", 0), speller.graph.opset_imports.get("", 0)) < AXIS_OPSET:
        return False
    return _unary("Softmax", "axis")(speller)


def _concat(speller: _Speller) -> bool:
    """Inputs: scale and zero point of the result, then a triple for each part."""
    count = (len(speller.node.inputs) - 2) // 3
    parts = [speller.dequantized(2 + 3 * index, f"part_{index}") for index in range(count)]
    if not parts or any(part is None for part in parts):
        return False
    return speller.quantized(speller.add("Concat", parts, "", speller.copied("axis")), 0)


def _where(speller: _Speller) -> bool:
    one, other = speller.dequantized(1, "first"), speller.dequantized(4, "second")
    if one is None or other is None:
        return False
    return speller.quantized(speller.add("Where", [speller.input(0), one, other], ""), 7)


def _gemm(speller: _Speller) -> bool:
    """A, B and an int32 bias in units of their scales; floats where no scale of a result is given."""
    node = speller.node
    turned = int_attribute(node, "transB", 0)
    a, b = speller.dequantized(0, "input"), speller.dequantized(3, "weight", 0 if turned else 1)
    scales = [constant_of(speller.input(index)) for index in (1, 4)]
    alpha = float_attribute(node, "alpha", 1.0)
    if a is None or b is None or scales[0] is None or scales[1] is None or scales[0].size != 1:
        return False
    operands = [a, b]
    codes = speller.input(6)
    if codes is not None:
        # alpha scales the product alone, and the bias is in its units.
        product = (np.float32(alpha) * scales[0].reshape(()) * scales[1]).astype(np.float32)
        is_row = product.size > 1
        scale = add_constant(
            speller.graph, f"{node.name}_bias_scale", product.reshape(-1) if is_row else product.reshape(())
        )
        operands.append(
            speller.add("DequantizeLinear", [codes, scale], "bias", {"axis": 0} if is_row else {})
        )
    value = speller.add("Gemm", operands, "", speller.copied("alpha", "transA", "transB"))
    if speller.input(7) is None:
        return speller.replace(value)
    return speller.quantized(value, 7)


def _pair(op_type: str) -> Callable[[_Speller], bool]:
    def spell(speller: _Speller) -> bool:
        node = speller.node
        zero = speller.input(2)
        kind = (
            zero.dtype if zero is not None else node.inputs[0].dtype if node.inputs[0] is not None else None
        )
        if kind is None or (kind not in WIDE and not _raised(speller.graph)):
            return False
        inputs = [speller.input(0), speller.scalar(speller.input(1)), speller.scalar(zero)]
        array = constant_of(speller.input(1))
        is_row = array is not None and array.size > 1
        return speller.replace(
            speller.add(op_type, inputs, "", speller.copied("axis", "block_size") if is_row else {})
        )

    return spell


def _raised(graph: ir.Model) -> bool:
    """Bring a graph to the first opset with codes of 16 and 4 bits; whether it is there."""
    if why_not_raised(graph, NARROW_OPSET) is not None:
        return False
    raise_opset(graph, NARROW_OPSET)
    return True


def _matmul_n_bits(speller: _Speller) -> bool:
    node = speller.node
    bits, block = int_attribute(node, "bits", 4), int_attribute(node, "block_size", 0)
    sizes = int_attribute(node, "K", 0), int_attribute(node, "N", 0)
    packed, scales = constant_of(speller.input(1)), constant_of(speller.input(2))
    zeros = constant_of(speller.input(3))
    is_known = (
        packed is not None
        and scales is not None
        and scales.dtype == np.float32
        and speller.input(4) is None
        and (zeros is not None or speller.input(3) is None)
        and (zeros is None or zeros.dtype == np.uint8)
    )
    if not is_known or bits not in BLOCKED or block < 16 or packed is None or scales is None:
        return False
    if not all(sizes) or not _raised(speller.graph):
        return False
    k, n = sizes
    blocks = -(-k // block)
    codes = _unpacked(packed.reshape(n, -1), bits)[:, :k]
    points = (
        np.full((n, blocks), 1 << (bits - 1), np.uint8)
        if zeros is None
        else _unpacked(zeros.reshape(n, -1), bits)[:, :blocks]
    )
    kind = np.uint8 if bits == 8 else ml_dtypes.uint4
    name = node.inputs[1].name if node.inputs[1] is not None else node.name
    constants = [
        add_constant(speller.graph, f"{name}_{what}", np.ascontiguousarray(array.T))
        for what, array in (
            ("codes", codes.astype(kind)),
            ("scale", scales.reshape(n, blocks)),
            ("zero_point", points.astype(kind)),
        )
    ]
    weight = speller.add("DequantizeLinear", constants, "dequantize", {"axis": 0, "block_size": block})
    product = speller.add("MatMul", [speller.input(0), weight], "")
    bias = speller.input(5)
    return speller.replace(product if bias is None else speller.add("Add", [product, bias], "biased"))


def _unpacked(array: Array, bits: int) -> Array:
    """Codes of rows of bytes, the first in the lowest bits."""
    per_byte = 8 // bits
    shifts = np.arange(per_byte, dtype=np.uint8) * np.uint8(bits)
    parts = (array[..., None] >> shifts) & np.uint8((1 << bits) - 1)
    return np.asarray(parts.reshape(*array.shape[:-1], -1))


_POOL = ("auto_pad", "ceil_mode", "count_include_pad", "kernel_shape", "pads", "strides")

_SPELLINGS: dict[str, Callable[[_Speller], bool]] = {
    "DequantizeLinear": _pair("DequantizeLinear"),
    "MatMulNBits": _matmul_n_bits,
    "QGemm": _gemm,
    "QLinearAdd": _binary("Add"),
    "QLinearAveragePool": _unary("AveragePool", *_POOL),
    "QLinearConcat": _concat,
    "QLinearGlobalAveragePool": _unary("GlobalAveragePool"),
    "QLinearLeakyRelu": _unary("LeakyRelu", "alpha"),
    "QLinearMul": _binary("Mul"),
    "QLinearSigmoid": _unary("Sigmoid"),
    "QLinearSoftmax": _softmax,
    "QLinearWhere": _where,
    "QuantizeLinear": _pair("QuantizeLinear"),
}
"""How each operator is written; one that is not here stays."""
