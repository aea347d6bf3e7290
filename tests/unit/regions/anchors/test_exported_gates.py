# SPDX-License-Identifier: Apache-2.0
"""Gated activations as torch's exporters wrote them are one product each, with ONNX Runtime's results."""

from functools import cache

import numpy as np
import pytest

pytest.importorskip("torch", reason="formulas are computed in torch")

from quantrt.model.load import load_model
from quantrt.regions.region import Gemm
from tests.exported_gates import EXPORTERS, KINDS, inputs, path_of
from tests.unit.model.check_pass import run
from tests.unit.regions.check_partition import Partitioned, partitioned_for_gpu
from tests.unit.regions.evaluate_regions import run_regions

TOLERANCE = 5e-6


@cache
def opened(exporter: str) -> Partitioned:
    return partitioned_for_gpu(load_model(path_of(exporter)))


@pytest.mark.parametrize("exporter", EXPORTERS)
def test_every_gate_is_one_product_and_its_residual_another(exporter: str):
    products = [
        region.formula for region in opened(exporter).regions.regions if isinstance(region.formula, Gemm)
    ]
    assert sum(formula.is_gated for formula in products) == len(KINDS)
    assert len(products) == 2 * len(KINDS)
    kinds = {kind.partition(":")[0] for kind in opened(exporter).kinds()}
    assert kinds <= {"Gemm", "Host"}


@pytest.mark.parametrize("exporter", EXPORTERS)
def test_values(exporter: str):
    found, model = opened(exporter), load_model(path_of(exporter))
    outputs = run_regions(found.graph, found.regions, inputs())
    for kind, value, want in zip(KINDS, found.graph.graph.outputs, run(model.graph, inputs()), strict=True):
        assert np.abs(outputs[value.name] - want).max() <= TOLERANCE * np.abs(want).max(), kind
