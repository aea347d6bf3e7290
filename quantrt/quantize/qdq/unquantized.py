# SPDX-License-Identifier: Apache-2.0
"""The float model behind a quantized one: weights as their codes stand for, activations not rounded.

It computes something else than the model given, for its values are neither rounded nor clipped.
"""

from __future__ import annotations

import onnx_ir as ir

from quantrt.ir.clone import clone
from quantrt.ir.edit import is_operator
from quantrt.model.passes.remove_unused import remove_unused
from quantrt.quantize.explicit.operators import spell_integer_operators
from quantrt.quantize.explicit.weights import dequantize_constants

__all__ = ["without_pairs"]


def without_pairs(given: ir.Model) -> ir.Model:
    """A clone without the pairs of QuantizeLinear and DequantizeLinear of activations.

    Codes that integer operators read, or that are inputs or outputs of the model, keep their nodes.
    """
    graph = clone(given)
    spell_integer_operators(graph)
    dequantize_constants(graph)
    for node in list(graph.graph):
        if not is_operator(node, "DequantizeLinear"):
            continue
        codes, output = node.inputs[0], node.outputs[0]
        maker = None if codes is None else codes.producer()
        x = maker.inputs[0] if maker is not None and is_operator(maker, "QuantizeLinear") else None
        if x is None or (output.is_graph_output() and (x.is_graph_output() or x.is_graph_input())):
            continue
        _take_place(x, output)
        graph.graph.remove(node, safe=True)
    remove_unused(graph)
    return graph


def _take_place(x: ir.Value, output: ir.Value) -> None:
    """Let the readers of a value read x; where it is an output of the model, x becomes it."""
    name, is_output = output.name, output.is_graph_output()
    output.replace_all_uses_with(x, replace_graph_outputs=True)
    if is_output:
        output.name = None  # frees it
        x.name = name
