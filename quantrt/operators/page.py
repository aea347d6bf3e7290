# SPDX-License-Identifier: Apache-2.0
"""docs/operators.md, written from OPERATORS: `python -m quantrt.operators.page > docs/operators.md`."""

from __future__ import annotations

import sys

from quantrt.operators.table import LAST_OPSET, OPERATORS

__all__ = ["operators_page"]

_HEAD = """# Operators

Generated from the operator table by `python -m quantrt.operators.page`; a test holds it current.

Every operator below is a torch function that runs on any torch device: the reference that a kernel is held
against, and what runs where there is no faster one. Versions are opsets of the default ONNX domain, a range
per function where the operator changed. Functions of the model, and operators that ONNX defines by others
whatever their types, are expanded.

Integer products are exact: they are summed in float64, which holds every partial sum. Text tensors are not
supported.

`python -m quantrt.operators.conformance` runs ONNX's own backend tests against these functions and prints a
table; `--device cuda` runs them on a GPU. It needs torch: `pip install '.[cuda]'`.

Every case that is skipped is named in the table with its reason: text, random numbers, operators beside
these, opset 6. A test holds that at least 97 % of all cases with an operator that TensorRT 10.15 has, or a
quantized one that it refuses, pass, and that each of these operators is in a case that passes. On an H200
as many pass: [conformance-h200.md](results/conformance-h200.md).

| operator | opsets |
|---|---|
"""

_TAIL = """
## Operators of ONNX Runtime's own

What `onnxruntime.transformers.optimizer`, Olive or Optimum put in the place of standard operators is
written in those again as a model is read, on every device: what is inside an Attention is quantized like
any product, and ONNX Runtime and OpenVINO fuse again what they have kernels for. Each is written by its
formula in ONNX Runtime's ContribOperators.md, and held against its own kernel in the tests.

| operators (com.microsoft) | left as they are |
|---|---|
| Gelu, FastGelu, BiasGelu, QuickGelu, BiasSplitGelu, BiasAdd | |
| LayerNormalization and SimplifiedLayerNormalization below opset 17, SkipLayerNormalization, \
SkipSimplifiedLayerNormalization | with the mean or the deviation as outputs |
| EmbedLayerNormalization, QEmbedLayerNormalization | its mask_index without a mask |
| GroupNorm, SkipGroupNorm | |
| Attention, QAttention, MultiHeadAttention: masks of lengths, of ends and starts, of keys, of queries; \
biases; past and present; packed keys and values | masks of four axes; buffers that past and present \
share; scores as an output; beams; rotation inside Attention |
| GroupQueryAttention: with and without caches, texts of several lengths, rotation, windows, softcap, \
biases | head_sink, smooth_softmax, caches in codes, windows as caches, chunks with padding |
| RotaryEmbedding | packed batches, scale |
| FusedMatMul, TransposeMatMul, FusedMatMulActivation, FusedGemm, GemmFastGelu, FusedConv, NhwcConv, \
BiasSoftmax | softmax over several axes |
| ExpandDims, GridSample, Pad, Range, Trilu | with a computed axis or computed pads |
| MatMulIntegerToFloat, DynamicQuantizeMatMul | |
| QLinearAdd, QLinearMul, QLinearConcat, QLinearWhere, QLinearSigmoid, QLinearLeakyRelu, QLinearSoftmax, \
QLinearAveragePool, QLinearGlobalAveragePool, QGemm, QuantizeLinear, DequantizeLinear, MatMulNBits | \
computed weights, channels last |

What is left runs in ONNX Runtime on a CPU, in float. For a GPU it is refused with the node's name and
what it has; so is optimization level 99, whose channels lie in the blocks of one processor.
"""


def operators_page() -> str:
    """The page's text."""
    lines = [
        f"| {op_type} | {', '.join(_ranges(op_type))} |\n"
        for op_type in sorted({row.op_type for row in OPERATORS})
    ]
    return _HEAD + "".join(lines) + _TAIL


def _ranges(op_type: str) -> list[str]:
    """Opsets of each row of an operator, oldest first."""
    rows = sorted((row for row in OPERATORS if row.op_type == op_type), key=lambda row: row.since)
    ends = [row.until or LAST_OPSET for row in rows]
    return [
        f"{row.since}" if row.since == end else f"{row.since}-{end}"
        for row, end in zip(rows, ends, strict=True)
    ]


if __name__ == "__main__":
    sys.stdout.write(operators_page())
