# SPDX-License-Identifier: Apache-2.0
"""Biases by what layers make in the quantized model: the mean error of every channel is taken back.

    bias[n] -= E[y'[n]] - E[y[n]]

y is what a layer of the float model makes, and y' what it makes in the quantized one, where every layer in
front of it is corrected already (Nagel et al. 2019, appendix D). So the shifts of rounded and of clipped
activations are taken back too, not those of weights alone as in `bias_correction`: what is flat in a picture
is rounded one way at every place. Both graphs run part by part, from the last cut on.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import onnx_ir as ir

from quantrt.ir.clone import clone
from quantrt.ir.edit import taken_names
from quantrt.ir.session import float_session
from quantrt.model.cuts import cut_part, list_cuts
from quantrt.quantize.algorithms.balance_tables import balance_tables
from quantrt.quantize.algorithms.bias_correction import channel_axis, is_layer, subtract_from_bias
from quantrt.quantize.qdq.write import write
from quantrt.quantize.quantized_model import QuantizedModel

__all__ = ["measure_biases"]

log = logging.getLogger(__name__)

Array = np.ndarray[Any, Any]
Inputs = Mapping[str, Array]

HELD_BYTES = 1 << 29
"""Of what passes a cut, over all samples, in either graph; further samples are let go."""


def measure_biases(quantized: QuantizedModel, floats: ir.Model, batches: Sequence[Inputs]) -> ir.Model:
    """The graph of a quantized model with biases after which no layer has a mean error on samples.

    Integer biases count as floats: their rounding does not matter beside that of activations.

    Args:
        floats: the float graph behind the model.
        batches: inputs of the model by name.
    """
    graph = clone(quantized.graph)
    target = replace(quantized.target, quantizes_outputs=False)  # what a layer makes is a float
    rounded = write(replace(quantized, graph=graph, biases={}, target=target))
    wanted = balance_tables(floats, {use: tensor.qparams.axis for use, tensor in quantized.weights.items()})
    sides = _Side(wanted, batches), _Side(rounded, batches)
    twins = {node.name: node for node in rounded.graph}
    names, twin_names = taken_names(graph), taken_names(rounded)
    cuts = list_cuts(wanted.graph)
    changed = 0
    for place, node in enumerate(graph.graph):
        if (node.name or "", 1) not in quantized.weights or not is_layer(node):
            continue
        passed = [cut.tensors for cut in cuts if cut.position <= place]
        means = [side.mean(node, passed[-1] if passed else ()) for side in sides]
        shift = (means[1] - means[0]).astype(np.float32)
        if subtract_from_bias(rounded, twins[node.name], shift, twin_names):
            changed += subtract_from_bias(graph, node, shift, names)
    log.debug("corrected the bias of %d layers by what they make", changed)
    return graph


class _Side:
    """One graph on samples, run part by part.

    Args:
        graph: of which only constants behind the last part may change.
    """

    def __init__(self, graph: ir.Model, batches: Sequence[Inputs]) -> None:
        self._graph = graph
        self._made = {node.name: node.outputs[0].name or "" for node in graph.graph}
        self._held = [dict(batch) for batch in batches]
        self._starts: tuple[str, ...] = ()

    def mean(self, node: ir.Node, passed: Sequence[str]) -> Array:
        """Mean of each channel of what a layer makes, f64 [C]; from then on runs begin at `passed`.

        Args:
            passed: all that nodes before the layer make and that is read behind them.
        """
        new = [name for name in passed if name not in self._starts]
        ends = [*new, self._made[node.name]]
        session = float_session(cut_part(self._graph, self._starts, ends))
        read = [value.name for value in session.get_inputs()]
        total, count, held_bytes = np.zeros(()), 0, 0
        for index, held in enumerate(self._held):
            *values, made = session.run(ends, {name: held[name] for name in read})
            rows = np.moveaxis(made, channel_axis(node), 0).reshape(made.shape[channel_axis(node)], -1)
            total, count = total + rows.sum(1, np.float64), count + rows.shape[1]
            for name in set(self._starts).difference(passed):
                del held[name]
            held.update(zip(new, values, strict=True))
            held_bytes += sum(held[name].nbytes for name in passed)
            if held_bytes > HELD_BYTES:
                del self._held[index + 1 :]
                break
        self._starts = tuple(passed)
        return np.asarray(total / max(count, 1))
