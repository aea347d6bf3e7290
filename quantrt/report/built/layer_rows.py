# SPDX-License-Identifier: Apache-2.0
"""The layers of what a build ships: every node of the model with its precision, and why it has it."""

from __future__ import annotations

from collections.abc import Mapping

from quantrt.ir.collector import without_collector
from quantrt.ir.sources import sources_of
from quantrt.plan.plan import Layer
from quantrt.quantize.quantized_model import Decision
from quantrt.report.built.facts import BuildFacts
from quantrt.report.built.own_codes import own_code_nodes
from quantrt.report.engine_layers.nodes import OWN_CODES
from quantrt.report.engine_layers.program import coded_attention, node_tactics

__all__ = ["layer_rows"]

INT8 = "int8"

ATTENTION_PRODUCTS = ("Attention", "MatMul")
CODED_ATTENTION = "its kernel makes codes of the floats that it multiplies"


@without_collector()
def layer_rows(facts: BuildFacts) -> tuple[Layer, ...]:
    """One row per node of the canonical model, with the precision it was given and why.

    On a GPU the reason goes on with the tactic of the region that the node is in.
    """
    winner = facts.winner
    tactics, attention = {}, {}
    if winner.spec.library == "cuda":
        tactics, attention = node_tactics(winner.model), coded_attention(winner.model)
    nodes = list(facts.model.graph.graph)
    reasons: Mapping[str, Decision] = {}
    codes: Mapping[str, str] = {}
    own_codes: frozenset[str] = frozenset()
    if winner.spec.precision == "int4":
        precision, codes = winner.spec.float_precision, {node.op_type: "int4" for node in nodes}
    elif winner.fitted is None:
        precision = winner.spec.precision
        own_codes = own_code_nodes(facts)
    else:
        target = winner.fitted.model.target
        codes = {node.op_type: target.precision_of(node.op_type) for node in nodes}
        precision = winner.spec.float_precision
        reasons = {row.node: row for row in winner.fitted.model.placement.decisions}
    rows = []
    for node in nodes:
        name = node.name or ""
        decision = reasons.get(name)
        reason = decision.reason if decision is not None else facts.choice.reason
        own = codes[node.op_type] if _is_in_codes(name, decision, facts) else precision
        if node.op_type in ATTENTION_PRODUCTS and name in attention:
            own, reason = attention[name], CODED_ATTENTION
        if name in own_codes:
            own, reason = INT8, OWN_CODES
        rows.append(
            Layer(
                name=name,
                op_type=node.op_type,
                precision=own,
                reason=f"{reason}; {tactics[name]}" if name in tactics else reason,
                sources=tuple(sources_of(node)),
            )
        )
    return tuple(rows)


def _is_in_codes(name: str, decision: Decision | None, facts: BuildFacts) -> bool:
    """Whether what is shipped computes a node in codes, or on a weight in 4 bits."""
    if facts.winner.spec.precision == "int4":
        return name in facts.int4_nodes
    return decision is not None and decision.is_int8
