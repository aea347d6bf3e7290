# SPDX-License-Identifier: Apache-2.0
"""Damage of regions of a small residual network, against quantizing nothing but that region."""

from dataclasses import replace

import numpy as np
import onnx_ir as ir
import pytest

from quantrt.assign.tables import sensitivity as sensitivity_module
from quantrt.assign.tables.region import Region, find_regions
from quantrt.assign.tables.sensitivity import Sensitivity
from quantrt.calibrate.dataset import Dataset, open_dataset
from quantrt.config import CalibrationConfig, QuantizeConfig
from quantrt.errors import InternalError
from quantrt.ir.session import float_session
from quantrt.quantize.fit.fit import Fitted, fit, observe_reference
from quantrt.quantize.mixed import keep_float
from quantrt.quantize.qdq.write import write
from quantrt.quantize.target import Target
from quantrt.quantize.targets.onnxruntime import ORT
from quantrt.quantize.targets.openvino import OPENVINO
from quantrt.reference.metrics import Error
from tests.nets import observe, resnet, samples

CONFIG = QuantizeConfig()
CALIBRATION = CalibrationConfig(method="minmax")


@pytest.fixture(scope="module")
def data() -> Dataset:
    return open_dataset({"x": samples(12, 3, 16, 16)}, resnet().inputs)


def fitted(target: Target, data: Dataset) -> Fitted:
    model = resnet()
    stats = observe(model, (target,), {"x": samples(12, 3, 16, 16)})
    reference = observe_reference(model, [batch.inputs for batch in data.batches(4, 8)], CONFIG)
    return fit(model, stats, target, reference, config=CONFIG, calibration=CALIBRATION)


def noise_ratio(quantized: ir.Model, data: Dataset, count: int) -> float:
    error = Error()
    wanted, got = (float_session(graph, optimize=False) for graph in (resnet().graph, quantized))
    for batch in data.batches(8, count):
        error.add(wanted.run(None, batch.inputs)[0], got.run(None, batch.inputs)[0])
    return error.noise_ratio


@pytest.mark.parametrize("target", [OPENVINO, ORT], ids=lambda target: target.name)
def test_all_regions_together_are_the_quantized_model(target, data):
    quantized = fitted(target, data)
    regions = find_regions(quantized.model.placement)
    measured = Sensitivity(quantized, regions, data, samples=8)
    plain = replace(quantized.model, target=replace(target, quantizes_outputs=False))
    expected = noise_ratio(write(plain), data, 8)
    assert measured.samples == 8
    assert measured.joint([region.name for region in regions]) == pytest.approx(expected, rel=1e-3)
    assert measured.joint([]) == 0.0


@pytest.mark.parametrize("target", [OPENVINO, ORT], ids=lambda target: target.name)
def test_cutting_the_model_changes_no_damage(target, data, monkeypatch):
    quantized = fitted(target, data)
    regions = find_regions(quantized.model.placement)
    monkeypatch.setattr(sensitivity_module, "CUTS", 5)
    measured = Sensitivity(quantized, regions, data, samples=8)
    damages = measured.measure({})
    assert list(damages) == [region.name for region in regions]
    assert all(0.0 < damage < 0.1 for damage in damages.values())
    for name, damage in damages.items():
        assert damage == pytest.approx(measured.joint([name]), rel=1e-3)


def test_one_region_alone_is_what_that_model_does(data):
    quantized = fitted(OPENVINO, data)
    regions = find_regions(quantized.model.placement)
    last = regions[-1]
    kept = {node: "float" for region in regions[:-1] for node in region.nodes}
    alone = keep_float(quantized, kept, CONFIG)
    measured = Sensitivity(quantized, regions, data, samples=8).joint([last.name])
    assert measured == pytest.approx(noise_ratio(write(alone.model), data, 8), rel=1e-3)


def test_what_a_kernel_makes_in_codes_is_rounded_whoever_reads_it(data):
    quantized = fitted(ORT, data)
    regions = find_regions(quantized.model.placement)
    measured = Sensitivity(quantized, regions, data, samples=8)
    for own in regions:
        kept = {node: "float" for region in regions if region is not own for node in region.nodes}
        alone = keep_float(quantized, kept, CONFIG).model
        if {row.node for row in alone.placement.decisions if row.is_int8} >= set(own.nodes):
            plain = replace(alone, target=replace(ORT, quantizes_outputs=False))
            expected = noise_ratio(write(plain), data, 8)
            assert measured.joint([own.name]) == pytest.approx(expected, rel=1e-3), own.name


def test_known_damages_are_not_measured_again(data):
    quantized = fitted(OPENVINO, data)
    regions = find_regions(quantized.model.placement)
    seen: list[int] = []
    known = {region.name: 0.5 for region in regions[1:]}
    found = Sensitivity(quantized, regions, data, samples=4).measure(
        known, lambda damages: seen.append(len(damages))
    )
    assert seen == [len(regions)]
    assert [found[region.name] for region in regions[1:]] == [0.5] * (len(regions) - 1)


def test_nodes_that_a_library_runs_together_are_one_region(data):
    placement = fitted(OPENVINO, data).model.placement
    alone = find_regions(placement)
    names = [alone[1].name, alone[2].name]
    together = find_regions(placement, [[*names, "no such node"], [names[0]]])
    assert len(together) == len(alone) - 1
    assert together[1] == Region(names[0], tuple(names), alone[1].op_types + alone[2].op_types)


def test_a_model_without_its_float_graph_is_refused(data):
    quantized = replace(fitted(OPENVINO, data), floats=None)
    with pytest.raises(InternalError, match="float graph"):
        Sensitivity(quantized, (), data, samples=4)


def test_damage_is_measured_on_rows_of_samples_alone():
    fixed = open_dataset({"x": np.asarray(samples(3, 3, 16, 16))}, resnet().inputs)
    quantized = fitted(OPENVINO, fixed)
    assert Sensitivity(quantized, find_regions(quantized.model.placement), fixed, samples=16).samples == 3
