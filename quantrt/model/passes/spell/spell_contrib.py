# SPDX-License-Identifier: Apache-2.0
"""Operators of ONNX Runtime's own become standard ones: those of its optimizer and those of its quantizer.

    onnxruntime.transformers.optimizer, Olive, Optimum     FastGelu, SkipLayerNormalization, Attention, ...
    onnxruntime.quantization                               QLinearAdd, QGemm, MatMulNBits, ...

All later stages know the standard's alone: what is inside Attention is quantized as any product, and the
libraries fuse again what they have kernels for. How each is written: quantrt/model/contrib. A form that has
no spelling stays as it is, which ONNX Runtime runs on a CPU.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import onnx_ir as ir

from quantrt.ir.clone import clone
from quantrt.ir.edit import all_names
from quantrt.ir.shapes import infer_shapes
from quantrt.model.contrib.activations import (
    spell_bias_add,
    spell_bias_split_gelu,
    spell_fast_gelu,
    spell_gelu,
    spell_quick_gelu,
)
from quantrt.model.contrib.attention import (
    spell_attention,
    spell_multi_head_attention,
    spell_q_attention,
)
from quantrt.model.contrib.codes import has_code_spelling, spell_codes
from quantrt.model.contrib.early import (
    spell_expand_dims,
    spell_grid_sample,
    spell_pad,
    spell_range,
    spell_trilu,
)
from quantrt.model.contrib.embeddings import spell_embed_layer_norm, spell_q_embed_layer_norm
from quantrt.model.contrib.grouped_attention import spell_group_query_attention
from quantrt.model.contrib.norms import (
    spell_group_norm,
    spell_simplified_layer_norm,
    spell_skip_group_norm,
    spell_skip_layer_norm,
    spell_skip_simplified_layer_norm,
)
from quantrt.model.contrib.products import (
    spell_bias_softmax,
    spell_dynamic_quantize_matmul,
    spell_fused_conv,
    spell_fused_gemm,
    spell_fused_matmul,
    spell_gemm_fast_gelu,
    spell_matmul_integer_to_float,
    spell_nhwc_conv,
)
from quantrt.model.contrib.rotary import spell_rotary_embedding
from quantrt.model.contrib.writer import NoSpellingError, Writer
from quantrt.model.passes.spell.convert_opset import TARGET_OPSET
from quantrt.model.passes.spell.raise_opset import raise_opset

__all__ = ["CONTRIB", "has_spelling", "spell_contrib", "why_left"]

CONTRIB = "com.microsoft"

_BLOCKED = f"{CONTRIB}.nchwc"
"""The domain of operators on channels in blocks of a processor's width."""

_LATEST = 17
"""The first opset with all operators that are written here: GridSample and Trilu, then LayerNormalization,
which ONNX Runtime's optimizer writes into older ones too."""

_SPELLINGS: dict[str, Callable[[Writer], None]] = {
    "Attention": spell_attention,
    "BiasAdd": spell_bias_add,
    "BiasGelu": spell_gelu,
    "BiasSoftmax": spell_bias_softmax,
    "BiasSplitGelu": spell_bias_split_gelu,
    "DynamicQuantizeMatMul": spell_dynamic_quantize_matmul,
    "EmbedLayerNormalization": spell_embed_layer_norm,
    "ExpandDims": spell_expand_dims,
    "FastGelu": spell_fast_gelu,
    "FusedConv": spell_fused_conv,
    "FusedGemm": spell_fused_gemm,
    "FusedMatMul": spell_fused_matmul,
    "FusedMatMulActivation": spell_fused_matmul,
    "Gelu": spell_gelu,
    "GemmFastGelu": spell_gemm_fast_gelu,
    "GridSample": spell_grid_sample,
    "GroupNorm": spell_group_norm,
    "GroupQueryAttention": spell_group_query_attention,
    "MatMulIntegerToFloat": spell_matmul_integer_to_float,
    "MultiHeadAttention": spell_multi_head_attention,
    "NhwcConv": spell_nhwc_conv,
    "Pad": spell_pad,
    "QAttention": spell_q_attention,
    "QEmbedLayerNormalization": spell_q_embed_layer_norm,
    "QuickGelu": spell_quick_gelu,
    "Range": spell_range,
    "RotaryEmbedding": spell_rotary_embedding,
    "SkipGroupNorm": spell_skip_group_norm,
    "SkipLayerNormalization": spell_skip_layer_norm,
    "SkipSimplifiedLayerNormalization": spell_skip_simplified_layer_norm,
    "TransposeMatMul": spell_fused_matmul,
    "Trilu": spell_trilu,
}
"""How each operator of the optimizer and of exporters is written."""

_IN_DEFAULT_DOMAIN = {"SimplifiedLayerNormalization": spell_simplified_layer_norm}
"""Operators of ONNX Runtime's own that are called as if they were the standard's."""


def has_spelling(node: ir.Node) -> bool:
    """Whether a node is of an operator that this pass replaces in most forms."""
    if node.domain in ("", "ai.onnx"):
        return node.op_type in _IN_DEFAULT_DOMAIN
    return node.domain == CONTRIB and (node.op_type in _SPELLINGS or has_code_spelling(node.op_type))


def spell_contrib(graph: ir.Model) -> int:
    """Replace each such node whose form is known, those of codes in the main graph alone; how many."""
    _admit(graph)
    count = 0
    spelled = _Spelled(graph)
    for node in list(graph.graph.all_nodes()):
        if not has_spelling(node):
            continue
        if has_code_spelling(node.op_type):
            count += node.graph is graph.graph and spell_codes(graph, node, spelled.taken)
        elif spelled.why_not(node) is None:
            count += 1
    return count


def why_left(graph: ir.Model) -> Iterator[tuple[ir.Node, str]]:
    """Nodes of ONNX Runtime's own that a graph still has, subgraphs included, each with the reason."""
    left = [node for node in graph.graph.all_nodes() if node.domain in (CONTRIB, _BLOCKED)]
    if not left:
        return
    trial = _Spelled(clone(graph))
    copies = {node.name: node for node in trial.graph.graph.all_nodes()}
    for node in left:
        if node.domain == _BLOCKED:
            yield node, "it has channels in the blocks of one processor, as optimization level 99 writes it"
        elif node.op_type in _SPELLINGS:
            yield node, trial.why_not(copies[node.name]) or "it was put in after the model was read"
        elif has_code_spelling(node.op_type):
            is_inner = node.graph is not graph.graph
            form = (
                "it is inside a subgraph" if is_inner else "ONNX Runtime's quantizer does not write its form"
            )
            yield node, form
        else:
            yield node, "no spelling of it is known"


class _Spelled:
    """Spells nodes of one graph, whose shapes it infers where one needs them."""

    def __init__(self, graph: ir.Model) -> None:
        self.graph = graph
        self.taken = all_names(graph)
        self._is_stale = True

    def why_not(self, node: ir.Node) -> str | None:
        """None once the node is replaced."""
        writer = Writer(self.graph, node, self.taken, self._refresh)
        spell = _SPELLINGS.get(node.op_type) or _IN_DEFAULT_DOMAIN[node.op_type]
        opset = self.graph.opset_imports.get("", TARGET_OPSET)
        try:
            if opset < TARGET_OPSET:
                raise NoSpellingError(f"the model is of opset {opset}, which could not be raised")
            spell(writer)
        except NoSpellingError as reason:
            writer.forget()
            return str(reason)
        self._is_stale = True
        return None

    def _refresh(self) -> None:
        if self._is_stale:
            infer_shapes(self.graph)
            self._is_stale = False


def _admit(graph: ir.Model) -> None:
    """Bring a graph that has such an operator, or will have, to an opset that knows it."""
    opset = graph.opset_imports.get("", TARGET_OPSET)
    if TARGET_OPSET <= opset < _LATEST and any(_is_late(node) for node in graph.graph.all_nodes()):
        raise_opset(graph, _LATEST)


def _is_late(node: ir.Node) -> bool:
    is_early = node.domain == CONTRIB and node.op_type in ("GridSample", "Trilu")
    return is_early or node.op_type.endswith("LayerNormalization")
