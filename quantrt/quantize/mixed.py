# SPDX-License-Identifier: Apache-2.0
"""A quantized model with some of its nodes back in floats.

Grids are those of the model in which everything is quantized, so that what was measured there holds here.
Weights, biases and constants of the nodes that go back are the float model's.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import onnx_ir as ir

from quantrt.config import QuantizeConfig
from quantrt.errors import InternalError
from quantrt.quantize.algorithms.balance_tables import balance_tables
from quantrt.quantize.algorithms.bias_correction import correct_biases
from quantrt.quantize.fit.fit import Fitted
from quantrt.quantize.placement.place_by_config import place_by_config
from quantrt.quantize.quantized_model import Placement
from quantrt.quantize.scales.qparams import QParams

__all__ = ["keep_float"]


def keep_float(fitted: Fitted, kept: Mapping[str, str], config: QuantizeConfig) -> Fitted:
    """The quantized model with these nodes float.

    What can only be 8-bit beside them, such as a residual sum, becomes float too: the decisions say so.

    Args:
        kept: reasons by node name, beside those that the model keeps float already.
        config: what it was quantized with: exclusions hold here too.

    Raises:
        InternalError: it was not made by `quantrt.quantize.fit.fit.fit` from observed ranges.
    """
    full = fitted.model
    if fitted.floats is None:
        raise InternalError("the float graph behind a quantized model is not kept")
    kept_float = {**fitted.kept_float, **kept}
    placement = place_by_config(fitted.floats, full.target, config, kept_float)
    grids = _grids(fitted.floats, full.activations, placement)
    weights = {use: full.weights[use] for use in placement.weights}
    graph = balance_tables(fitted.floats, {use: tensor.qparams.axis for use, tensor in weights.items()})
    graph = graph if fitted.means is None else correct_biases(graph, weights, fitted.means)
    model = replace(
        full,
        graph=graph,
        placement=placement,
        activations=grids,
        weights=weights,
        biases={use: codes for use, codes in full.biases.items() if use in placement.biases},
    )
    return replace(fitted, model=model, kept_float=kept_float)


def _grids(graph: ir.Model, known: Mapping[str, QParams], placement: Placement) -> dict[str, QParams]:
    """The grid of every quantized value: its own, or that of the value whose elements were moved to make it.

    Where everything is quantized, the rounding of a moved value may stand above the nodes that move it.
    """
    makers = {value.name or "": node for node in graph.graph for value in node.outputs}
    found: dict[str, QParams] = {}
    for name in placement.values:
        source = name
        while source not in known:
            maker = makers.get(source)
            above = maker.inputs[0] if maker is not None and maker.inputs else None
            if above is None:
                raise InternalError(f"'{name}' has no grid, and nothing that it is made of has one")
            source = above.name or ""
        found[name] = known[source]
    return found
