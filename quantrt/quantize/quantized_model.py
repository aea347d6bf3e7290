# SPDX-License-Identifier: Apache-2.0
"""The artefacts of quantization: where (Placement) and with which numbers (QuantizedModel)."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import onnx_ir as ir

from quantrt.model.model import Model
from quantrt.quantize.scales.qparams import QParams, QuantizedTensor
from quantrt.quantize.target import Grid, Target

__all__ = ["Decision", "Placement", "QuantizedModel", "Use"]

Use = tuple[str, int]
"""One edge of the graph: a node's name and the index of one of its inputs."""


@dataclass(frozen=True)
class Decision:
    """Whether one node runs in 8 bits, and why or why not."""

    node: str
    op_type: str
    is_int8: bool
    reason: str


@dataclass(frozen=True, kw_only=True)
class Placement:
    """Which edges of a graph are quantized for one target; no numbers yet.

    Attributes:
        values: names of the activations that are quantized.
        uses: for each edge that reads a quantized value, the name of the value whose grid it reads: the
            edge's own value, or one upstream of value-preserving operators.
        per_token: edges that read codes on a scale of each row, which is found when the model runs.
        made: those of `values` that kernels make in codes, so that every reader sees them rounded.
        outputs: those of `values` that are outputs of the model, which gets their quantized form.
        symmetric: those of `values` that a reader wants on the symmetric grid.
        grids: what those of `values` are mapped onto that have another grid than the target's.
        groups: sets of quantized values that must share one grid.
        weights: for each constant operand that is stored as int8, its output-channel axis.
        biases: for each bias that may be stored as int32, the (activation, weight) edges that scale it.
        decisions: one per node.
    """

    values: frozenset[str]
    uses: Mapping[Use, str]
    per_token: frozenset[Use] = frozenset()
    made: frozenset[str] = frozenset()
    outputs: frozenset[str] = frozenset()
    symmetric: frozenset[str] = frozenset()
    grids: Mapping[str, Grid] = field(default_factory=dict)
    groups: tuple[frozenset[str], ...] = ()
    weights: Mapping[Use, int | None] = field(default_factory=dict)
    biases: Mapping[Use, tuple[Use, Use]] = field(default_factory=dict)
    decisions: tuple[Decision, ...] = ()


@dataclass(frozen=True)
class QuantizedModel:
    """A float graph with quantized edges.

    Attributes:
        model: the float model it annotates.
        graph: that model's graph, or a clone whose constants an algorithm has changed; behind a table or
            before products it may have put a Mul.
        target: the rules that placed the edges.
        placement: which edges are quantized.
        activations: grid of each quantized value, by name.
        weights: codes of each quantized constant operand.
        biases: int32 codes of each quantized bias.
        channel_scales: what the output channels of layers were divided by, by the names of the layers.
        multiplied: what Muls before products divide values by, by the names of the values.
        notes: what a user should know, one sentence each.
    """

    model: Model
    graph: ir.Model
    target: Target
    placement: Placement
    activations: Mapping[str, QParams]
    weights: Mapping[Use, QuantizedTensor]
    biases: Mapping[Use, QuantizedTensor] = field(default_factory=dict)
    channel_scales: Mapping[str, np.ndarray] = field(default_factory=dict)
    multiplied: Mapping[str, np.ndarray] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    @property
    def digest(self) -> str:
        """SHA-256 of grids and codes: models of one graph with the same digest round alike."""
        hashed = hashlib.sha256()
        for name, grid in sorted(self.activations.items()):
            hashed.update(name.encode())
            for array in (grid.scale, grid.zero_point):
                hashed.update(np.ascontiguousarray(array).tobytes())
        for node, index in sorted(self.placement.per_token):
            hashed.update(f"{node}\0{index}\0per token".encode())
        for (node, index), weight in sorted(self.weights.items()):
            hashed.update(f"{node}\0{index}".encode())
            for array in (weight.codes, weight.qparams.scale):
                hashed.update(np.ascontiguousarray(array).tobytes())
        return hashed.hexdigest()

    @property
    def residual_sums(self) -> tuple[str, ...]:
        """The sums whose both sides are rounded; none where a kernel adds one side as it is."""
        if self.target.residual != "both":
            return ()
        return tuple(row.node for row in self.placement.decisions if row.is_int8 and row.op_type == "Add")

    @property
    def input_layers(self) -> tuple[str, ...]:
        """The nodes that read an input of the model in codes."""
        inputs = {value.name for value in self.graph.graph.inputs}
        return tuple(dict.fromkeys(node for (node, _), name in self.placement.uses.items() if name in inputs))

    @property
    def has_int8(self) -> bool:
        """Whether any node runs in 8 bits."""
        return any(decision.is_int8 for decision in self.placement.decisions)
