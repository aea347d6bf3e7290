# SPDX-License-Identifier: Apache-2.0
"""Products, norms, projections and embeddings as torch's exporters wrote them are one region each, or two."""

from functools import cache

import numpy as np
import pytest

pytest.importorskip("torch", reason="formulas are computed in torch")

from quantrt.model.load import load_model
from quantrt.regions.region import Attention, Conv, Gemm, Host, Nodes, Region, Rows, View
from tests.exported_blocks import ACTIVATIONS, EXPORTERS, blocks_of, inputs, path_of
from tests.unit.model.check_pass import run
from tests.unit.regions.check_partition import Partitioned, partitioned_for_gpu
from tests.unit.regions.evaluate_regions import run_regions

TOLERANCE = 5e-6
NORMS = ("layer norm", "layer norm, spelled", "rms norm", "rms norm, spelled")
SKIPS = ("skip, layer norm", "skip, rms norm")

KINDS = {
    **{f"product, {name}": [Gemm] for name in ACTIVATIONS},
    **{f"image, {name}": [Conv] for name in ACTIVATIONS},
    **dict.fromkeys(NORMS, [Rows]),
    **dict.fromkeys(SKIPS, [Rows, Gemm]),
    "projections": [Gemm, Attention],
    "embeddings": [Rows],
}


@cache
def opened(exporter: str) -> Partitioned:
    return partitioned_for_gpu(load_model(path_of(exporter)))


def regions_of(found: Partitioned, output: str) -> list[Region]:
    """What computes an output, in order, without sizes, views, and nodes that read neither x nor tokens."""
    makers = {name: region for region in found.regions.regions for name in region.outputs}
    wanted, seen = [output], {}
    while wanted:
        region = makers.get(wanted.pop())
        if region is not None and region.name not in seen:
            seen[region.name] = region
            wanted += region.inputs
    kept = [region for region in found.regions.regions if region.name in seen]
    return [region for region in kept if not isinstance(region.formula, Host | View | Nodes)]


def cases():
    for exporter in EXPORTERS:
        for number, name in enumerate(blocks_of(exporter)):
            yield pytest.param(exporter, number, name, id=f"{exporter}: {name}")


@pytest.mark.parametrize(("exporter", "number", "name"), list(cases()))
def test_every_block_is_few_regions(exporter: str, number: int, name: str):
    found = opened(exporter)
    regions = regions_of(found, found.graph.graph.outputs[number].name)
    assert [type(region.formula) for region in regions] == KINDS[name], found.regions.mismatches


@pytest.mark.parametrize("exporter", EXPORTERS)
def test_the_sum_behind_a_skip_is_stored_beside_its_norm(exporter: str):
    found = opened(exporter)
    for name in SKIPS:
        output = found.graph.graph.outputs[blocks_of(exporter).index(name)].name
        norm, product = regions_of(found, output)
        assert set(product.inputs) == set(norm.outputs) and len(norm.outputs) == 2


@pytest.mark.parametrize("exporter", EXPORTERS)
def test_tables_of_words_and_kinds_are_read_in_the_norm(exporter: str):
    found = opened(exporter)
    (region,) = regions_of(found, found.graph.graph.outputs[-1].name)
    expression = region.formula.expression
    tables = {expression.operands[number].name for number in expression.lookups}
    assert len(tables) == 2
    assert "tokens" in region.inputs


@pytest.mark.parametrize("exporter", EXPORTERS)
def test_nothing_is_missed(exporter: str):
    assert opened(exporter).regions.mismatches == ()


@pytest.mark.parametrize("exporter", EXPORTERS)
def test_values(exporter: str):
    found = opened(exporter)
    expected = run(found.graph, inputs())
    outputs = run_regions(found.graph, found.regions, inputs())
    for value, want in zip(found.graph.graph.outputs, expected, strict=True):
        assert np.abs(outputs[value.name] - want).max() <= TOLERANCE * np.abs(want).max(), value.name
