# SPDX-License-Identifier: Apache-2.0
"""A model in the form that a GPU likes: fewer and wider products, normalizations spelled as arithmetic.

Weights of less than 8 bits are floats there; kernels that read codes find them in the values.
"""

from __future__ import annotations

from dataclasses import replace

import onnx_ir as ir

from quantrt.errors import ModelError
from quantrt.ir.clone import clone
from quantrt.ir.collector import without_collector
from quantrt.model.absent import absent_tensors, tensors_of
from quantrt.model.model import Model
from quantrt.model.passes.for_gpu.add_to_tokens import add_to_tokens
from quantrt.model.passes.for_gpu.batch_first import batch_first
from quantrt.model.passes.for_gpu.choose_scores import choose_scores
from quantrt.model.passes.for_gpu.merge_gates import merge_gates
from quantrt.model.passes.for_gpu.merge_projections import merge_projections
from quantrt.model.passes.for_gpu.narrow_masks import narrow_masks
from quantrt.model.passes.for_gpu.pick_tokens_early import pick_tokens_early
from quantrt.model.passes.for_gpu.settle_reshapes import settle_reshapes
from quantrt.model.passes.for_gpu.spell_batch_norm import spell_batch_norm
from quantrt.model.passes.for_gpu.split_attention_heads import split_attention_heads
from quantrt.model.passes.for_gpu.split_convolutions import split_convolutions
from quantrt.model.passes.for_gpu.turn_pairs import turn_pairs
from quantrt.model.passes.for_gpu.whole_gathers import whole_gathers
from quantrt.model.passes.spell.spell_contrib import why_left
from quantrt.model.passes.types.decode_tables import decode_tables
from quantrt.model.passes.types.dequantize_narrow import dequantize_narrow

__all__ = ["for_gpu"]

NARROW = ("int2", "uint2", "int4", "uint4", "float4_e2m1fn")
"""Types of several elements in a byte."""


@without_collector()
def for_gpu(model: Model) -> Model:
    """The same function of the same inputs; the model given is not changed.

    Raises:
        ModelError: an input or output has elements of less than a byte, or an operator of ONNX Runtime's own
            is not in a form that standard ones express.
    """
    for spec in (*model.inputs, *model.outputs):
        if spec.dtype in NARROW:
            raise ModelError(
                f"an engine for a GPU neither takes nor gives '{spec.name}'",
                got=f"elements of type {spec.dtype}",
                expected="elements of whole bytes; inside the model there may be others",
                hint="--device cpu",
            )
    graph = clone(model.graph)
    dequantize_narrow(graph)
    decode_tables(graph)
    _refuse_contrib(graph)
    settle_reshapes(graph)
    whole_gathers(graph)
    narrow_masks(graph)
    choose_scores(graph)
    split_attention_heads(graph)
    batch_first(graph)
    add_to_tokens(graph)
    turn_pairs(graph)
    merge_projections(graph)
    merge_gates(graph)
    pick_tokens_early(graph)
    spell_batch_norm(graph)
    split_convolutions(graph)
    gone = absent_tensors(tensors_of(model.graph), graph)
    absent = {name: None if same in gone else same for name, same in model.absent.items()}
    return replace(model, graph=graph, absent={**absent, **gone})


def _refuse_contrib(graph: ir.Model) -> None:
    for node, reason in why_left(graph):
        raise ModelError(
            f"an engine for a GPU cannot have '{node.name}', ONNX Runtime's own {node.op_type}",
            got=reason,
            expected="a form that operators of the ONNX standard express",
            hint="the model as it was before ONNX Runtime optimized it, or --device cpu",
        )
