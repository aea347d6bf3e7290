# SPDX-License-Identifier: Apache-2.0
"""Attention as torch's exporters wrote it is recognised, and computes what ONNX Runtime does."""

import math
from functools import cache

import numpy as np
import onnx
import onnx_ir as ir
import pytest

pytest.importorskip("torch", reason="formulas are computed in torch")

from quantrt.model.load import make_model
from quantrt.regions.region import Attention, Region
from tests.exported_attention import DYNAMIC, EXPORTERS, GROUPS, SIZE, STATIC, inputs, path_of
from tests.unit.model.check_pass import run
from tests.unit.regions.check_partition import Partitioned, partitioned_for_gpu
from tests.unit.regions.evaluate_regions import run_regions

TOLERANCE = 5e-6
NO_MASK = {"has_mask": False, "mask_constant": False, "is_causal": False}
CAUSAL = {**NO_MASK, "is_causal": True}
ADDED = {**NO_MASK, "has_mask": True, "mask_kind": "added"}
KEPT = {**NO_MASK, "has_mask": True, "mask_kind": "kept"}
CONSTANT = {**NO_MASK, "mask_constant": True}

EXPECTED = {
    "plain": NO_MASK,
    "another scale": {**NO_MASK, "scale": 0.3},
    "causal": CAUSAL,
    "a bias": ADDED,
    "truths": {**NO_MASK, "has_mask": True},
    "truths of the padding": {**NO_MASK, "has_mask": True},
    "a spread mask": ADDED,
    "an added mask": ADDED,
    "q scaled": ADDED,
    "both scaled": ADDED,
    "chosen and added": {**ADDED, "is_causal": True},
    "filled": {**NO_MASK, "has_mask": True, "mask_kind": "dropped", "mask_value": -1e9},
    "shared heads": ADDED,
    "shared heads, causal": CAUSAL,
    "constant truths": CAUSAL,
    "constant truths of no triangle": CONSTANT,
    "constant, causal": CAUSAL,
    "constant of every head": CONSTANT,
    "library": NO_MASK,
    "library, causal": CAUSAL,
    "library, causal floats": CAUSAL,
    "library, padding": ADDED,
}


@cache
def opened(exporter: str, sizes: str) -> Partitioned:
    proto = onnx.load(path_of(exporter, sizes))
    return partitioned_for_gpu(make_model(ir.from_proto(proto)))


def attentions(found: Partitioned) -> list[Region]:
    return [region for region in found.regions.regions if isinstance(region.formula, Attention)]


def cases():
    for exporter in EXPORTERS:
        for sizes, blocks in (("free", DYNAMIC), ("fixed", STATIC)):
            for name in blocks:
                yield pytest.param(exporter, sizes, name, id=f"{exporter}: {name}")


@pytest.mark.parametrize(("exporter", "sizes", "name"), list(cases()))
def test_every_spelling_is_one_region(exporter: str, sizes: str, name: str):
    found = opened(exporter, sizes)
    blocks = DYNAMIC if sizes == "free" else STATIC
    regions = attentions(found)
    assert len(regions) == len(blocks), found.reasons("attention")
    formula = regions[list(blocks).index(name)].formula
    want = {"scale": 1 / math.sqrt(SIZE), **EXPECTED[name]}
    assert formula.scale == pytest.approx(want.pop("scale"))
    got = {key: getattr(formula, key) for key in want}
    assert {**got, "mask_constant": bool(formula.mask_constant)} == want


@pytest.mark.parametrize("sizes", ["free", "fixed"])
@pytest.mark.parametrize("exporter", EXPORTERS)
def test_values(exporter: str, sizes: str):
    found = opened(exporter, sizes)
    # ONNX Runtime's operator takes no mask of one row: what it computes without the operator holds for both.
    spelled = opened("dynamo" if exporter == "dynamo attention" else exporter, sizes)
    expected = run(spelled.graph, feeds_of(spelled))
    outputs = run_regions(found.graph, found.regions, feeds_of(found))
    blocks = DYNAMIC if sizes == "free" else STATIC
    for name, value, want in zip(blocks, found.graph.graph.outputs, expected, strict=True):
        assert np.abs(outputs[value.name] - want).max() <= TOLERANCE * np.abs(want).max(), name


def feeds_of(found: Partitioned) -> dict[str, np.ndarray]:
    names = {value.name for value in found.graph.graph.inputs}
    return {name: array for name, array in inputs().items() if name in names}


def test_heads_that_serve_several_are_read_once():
    regions = attentions(opened("dynamo attention", "free"))
    region = regions[list(DYNAMIC).index("shared heads")]
    graph = opened("dynamo attention", "free").graph
    values = {value.name: value for node in graph.graph for value in node.outputs}
    assert [values[name].shape[1] for name in region.inputs[1:3]] == [GROUPS, GROUPS]
