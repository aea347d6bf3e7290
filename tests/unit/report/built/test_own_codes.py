# SPDX-License-Identifier: Apache-2.0
"""Of a model that came quantized, a build for a CPU tells what the library computes in codes."""

from collections.abc import Iterator

import pytest

from quantrt.build import build
from quantrt.config import BenchConfig, BuildConfig, DeviceConfig
from quantrt.model.load import make_model
from quantrt.plan.plan import Layer
from quantrt.quantize.qdq.write import write
from quantrt.quantize.targets.onnxruntime import ORT
from quantrt.quantize.targets.openvino import OPENVINO
from quantrt.report.engine_layers.nodes import OWN_CODES
from quantrt.runtime.engine import Engine
from tests.nets import quantized, resnet, samples

BENCH = BenchConfig(duration_s=0.05, max_duration_s=0.1, warmup_s=0.01, min_runs=3)
IMAGES = {"x": samples(12, 3, 16, 16)}
TARGETS = {"onnxruntime": ORT, "openvino": OPENVINO}


@pytest.fixture(params=TARGETS)
def engine(request: pytest.FixtureRequest) -> Iterator[Engine]:
    """Of a model whose pairs are placed for the library that runs it."""
    source = write(quantized(resnet(), TARGETS[request.param], IMAGES))
    config = BuildConfig(bench=BENCH, device=DeviceConfig(libraries=(request.param,)))
    with build(make_model(source), config=config) as built:
        yield built


def rows(engine: Engine, op_type: str) -> list[Layer]:
    return [row for row in engine.plan.layers if row.op_type == op_type]


def test_products_on_the_models_own_codes_are_no_floats(engine: Engine):
    assert {(row.precision, row.reason) for row in rows(engine, "Conv")} == {("int8", OWN_CODES)}
    assert rows(engine, "QuantizeLinear")[0].precision == "fp32", "it reads the model's input"


def test_a_weight_that_the_library_dequantizes_ahead_is_as_its_reader(engine: Engine):
    weights = [row for row in rows(engine, "DequantizeLinear") if "w0" in row.name]
    assert [row.precision for row in weights] == ["int8"]


def test_the_notes_count_the_products(engine: Engine):
    count = len(
        [row for row in engine.plan.layers if row.op_type in ("Conv", "Gemm") and row.precision == "int8"]
    )
    library = engine.plan.model.library
    assert count >= 4
    told = f"{library} computes {count} of its 5 products in codes"
    assert f"the model is quantized already and runs as it is: {told}" in engine.report["notes"]


def test_a_float_model_has_no_such_note():
    with build(resnet(), config=BuildConfig(bench=BENCH)) as engine:
        assert not any("quantized already" in note for note in engine.report["notes"])
        assert {row.precision for row in engine.plan.layers} == {"fp32"}
