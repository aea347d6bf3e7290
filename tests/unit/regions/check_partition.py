# SPDX-License-Identifier: Apache-2.0
"""Shared by the tests of regions: a model from ONNX text, partitioned, checked and computed both ways."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from quantrt.model.file.name_nodes import name_nodes
from quantrt.model.for_gpu import for_gpu
from quantrt.model.load import make_model
from quantrt.model.model import Model
from quantrt.regions.facts.facts import is_constant, reads_of
from quantrt.regions.partition import partition
from quantrt.regions.region import Attention, GroupNorm, Regions, Resize
from tests.unit.model.check_pass import proto_of, run
from tests.unit.regions.evaluate_regions import run_regions


@dataclass(frozen=True)
class Partitioned:
    """A canonical graph and its regions."""

    graph: ir.Model
    regions: Regions

    def kinds(self) -> list[str]:
        """For each region: its formula and its operators, "Conv: Conv Relu"."""
        op_types = {node.name: node.op_type for node in self.graph.graph}
        return [
            f"{type(region.formula).__name__}: {' '.join(op_types[name] for name in region.nodes)}"
            for region in self.regions.regions
        ]

    def reasons(self, pattern: str) -> list[str]:
        """Why fusions of a kind did not happen."""
        return [mismatch.reason for mismatch in self.regions.mismatches if mismatch.pattern == pattern]

    def only(self, kind: type):
        """The one region with a formula of this class."""
        (found,) = (region for region in self.regions.regions if isinstance(region.formula, kind))
        return found


def partitioned_for_gpu(model: Model) -> Partitioned:
    """A model as engines for a GPU see it, its regions checked."""
    graph = for_gpu(model).graph
    found = Partitioned(graph, partition(graph))
    check_structure(graph, found.regions)
    return found


def partitioned(body: str, **options: object) -> Partitioned:
    """The regions of a model in ONNX text, after canonicalization; the structure is checked."""
    proto = proto_of(body, **options)
    name_nodes(proto.graph)
    graph = make_model(ir.from_proto(proto)).graph
    found = Partitioned(graph, partition(graph))
    check_structure(found.graph, found.regions)
    return found


def check_structure(graph: ir.Model, regions: Regions) -> None:
    """Nodes in one region each, whose inputs are made before it and whose outputs are what others read.

    Attention may know of itself what its nodes read of a causal mask, a norm the shape that is restored
    behind it, and a resize the sizes of its result; what makes these alone is in no region.
    """
    nodes = {node.name: node for node in graph.graph}
    members = [name for region in regions.regions for name in region.nodes]
    assert len(set(members)) == len(members)
    assert len({region.name for region in regions.regions}) == len(regions.regions)
    ready = {value.name for value in graph.graph.inputs}
    caller = {value.name for value in graph.graph.outputs}
    for region in regions.regions:
        inside = [nodes[name] for name in region.nodes]
        made = {value.name for node in inside for value in node.outputs if value.name}
        outside = [node for name, node in nodes.items() if name not in region.nodes]
        wanted = caller | {value.name for node in outside for value in reads_of(node)}
        read = {value.name for node in inside for value in reads_of(node) if not is_constant(value)} - made
        knows_more = isinstance(region.formula, Attention | GroupNorm | Resize)
        assert read >= set(region.inputs) if knows_more else set(region.inputs) == read, region.name
        assert set(region.outputs) == made & wanted, region.name
        assert ready >= set(region.inputs), region.name
        assert len(set(region.inputs)) == len(region.inputs)
        ready |= set(region.outputs)
    assert set(members) <= set(nodes) and caller <= ready | set(graph.graph.initializers)
    assert all(mismatch.node in nodes for mismatch in regions.mismatches)


def check_values(found: Partitioned, feeds: Mapping[str, np.ndarray], *, tolerance: float) -> None:
    """The regions compute what ONNX Runtime does; `tolerance` is relative to the largest element."""
    expected = run(found.graph, feeds)
    outputs = run_regions(found.graph, found.regions, feeds)
    for value, want in zip(found.graph.graph.outputs, expected, strict=True):
        got = outputs[value.name]
        assert got.shape == want.shape and got.dtype == want.dtype
        finite = want[np.isfinite(want)] if want.dtype.kind == "f" else want
        scale = float(np.abs(finite).max()) if finite.size and want.dtype.kind == "f" else 0.0
        np.testing.assert_allclose(got, want, rtol=0, atol=tolerance * scale)
