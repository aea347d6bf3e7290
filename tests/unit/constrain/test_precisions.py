# SPDX-License-Identifier: Apache-2.0
"""Rules for the precisions that layers run in, and for which layers may be 8-bit at all."""

from dataclasses import replace

import pytest

from quantrt.build import build
from quantrt.config import (
    BenchConfig,
    BuildConfig,
    CalibrationConfig,
    ConstraintConfig,
    DeviceConfig,
    QuantizeConfig,
)
from quantrt.constrain.constraints import read_constraints
from quantrt.errors import UsageError
from quantrt.model.load import make_model
from quantrt.plan.plan import Layer
from quantrt.quantize.placement.place_by_config import place_by_config
from quantrt.quantize.qdq.write import write
from quantrt.quantize.targets import TARGETS
from quantrt.quantize.targets.cuda import CUDA
from quantrt.quantize.targets.openvino import OPENVINO
from tests.nets import int8_nodes, quantized, resnet, samples

X = samples(8, 3, 16, 16)
CONFIG = BuildConfig(
    precisions=frozenset({"fp32", "int8"}),
    bench=BenchConfig(duration_s=0.02, max_duration_s=0.05, warmup_s=0.01, min_runs=3),
    calibration=CalibrationConfig(method="minmax"),
)
GPU = replace(CONFIG, device=DeviceConfig(device="cuda"))


def ruled(config: BuildConfig, *rules: str, prefer: bool = False) -> BuildConfig:
    return replace(
        config, constraints=ConstraintConfig(layer_precisions=rules, prefer_layer_precisions=prefer)
    )


def test_a_float_keeps_layers_out_of_codes():
    model = resnet()
    found, config = read_constraints(model, ruled(CONFIG, "Conv_2:fp32", "Gemm*:fp32"))
    assert dict(found.precisions.wanted) == {"Conv_2": "fp32", "Gemm_12": "fp32"}
    placed = int8_nodes(place_by_config(model.graph, OPENVINO, config.quantize))
    assert "Conv_0" in placed
    assert not placed & {"Conv_2", "Gemm_12"}


def test_the_last_rule_counts():
    found, config = read_constraints(resnet(), ruled(CONFIG, "*:fp32", "Conv_4:int8"))
    assert found.precisions.wanted["Conv_4"] == "int8"
    assert found.precisions.wanted["Conv_0"] == "fp32"
    assert "Conv_4" not in config.quantize.exclude
    assert int8_nodes(place_by_config(resnet().graph, OPENVINO, config.quantize)) == {"Conv_4"}


def test_a_pattern_with_codes_is_for_products():
    found, config = read_constraints(resnet(), ruled(CONFIG, "*:int8"))
    assert set(found.precisions.codes) == {"Conv_0", "Conv_2", "Conv_4", "Conv_8", "Gemm_12"}
    assert config == ruled(CONFIG, "*:int8")


def test_what_is_shipped_is_checked():
    found, _ = read_constraints(resnet(), ruled(CONFIG, "Conv_0:int8", "Conv_2:fp32"))
    layers = tuple(
        Layer(name=name, op_type="Conv", precision="fp32", reason=reason, sources=())
        for name, reason in (("Conv_0", "too slow"), ("Conv_2", ""))
    )
    assert list(found.precisions.why_not(layers)) == [
        "layer 'Conv_0' is not int8 but fp32 in the fastest engine, too slow"
    ]


@pytest.mark.parametrize(
    ("config", "rule", "message", "hint"),
    [
        (CONFIG, "Conv0:fp32", "the model has no layer 'Conv0'", "'Conv_0'"),
        (CONFIG, "/conv*:fp32", "the model has no layer", None),
        (CONFIG, "Conv_0:fp61", "cannot read 'Conv_0:fp61'", "'fp16'"),
        (CONFIG, "Conv_0:fp32+int8", "cannot read", None),
        (CONFIG, "Conv_0", "cannot read 'Conv_0'", None),
        (CONFIG, "Conv_0:fp16", "the libraries of a CPU", "--prefer-layer-precisions"),
        (CONFIG, "Conv_0:fp8", "--fp8 is not asked for", "--prefer-layer-precisions"),
        (GPU, "Conv_0:fp32", "--layer-output-types", "--prefer-layer-precisions"),
        (GPU, "Conv_0:bf16", "outside codes this engine is fp16", "--prefer-layer-precisions"),
    ],
)
def test_what_cannot_be(config: BuildConfig, rule: str, message: str, hint: str | None):
    with pytest.raises(UsageError, match=message) as caught:
        read_constraints(resnet(), ruled(config, rule))
    if hint is not None:
        assert hint in str(caught.value.hint)


def test_on_a_gpu_fp16_and_bf16_are_the_floats():
    found, config = read_constraints(resnet(), ruled(GPU, "Conv_2:fp16"))
    assert not found.precisions.broken
    assert "Conv_2" not in int8_nodes(place_by_config(resnet().graph, CUDA, config.quantize))
    bf16 = replace(GPU, precisions=frozenset({"int8", "bf16"}))
    assert not read_constraints(resnet(), ruled(bf16, "Conv_2:bf16"))[0].precisions.broken


def test_a_rule_may_be_preferred():
    found, _ = read_constraints(resnet(), ruled(CONFIG, "Conv_0:fp16", prefer=True))
    assert found.precisions.broken == (
        "layer 'Conv_0' cannot be fp16: the libraries of a CPU compute its layers in fp32",
    )


def test_engines_keep_them():
    config = ruled(CONFIG, "Conv_2:fp32")
    with build(resnet(), config=config, calibration={"x": X}, validation={"x": X}) as engine:
        assert {row.name: row.precision for row in engine.plan.layers}["Conv_2"] == "fp32"
    impossible = replace(ruled(CONFIG, "MaxPool_7:int8"), quantize=QuantizeConfig(exclude_types=("Conv",)))
    with pytest.raises(UsageError, match="layer 'MaxPool_7' is not int8 but fp32"):
        build(resnet(), config=impossible, calibration={"x": X}, validation={"x": X})
    preferred = replace(impossible, constraints=replace(impossible.constraints, prefer_layer_precisions=True))
    with build(resnet(), config=preferred, calibration={"x": X}, validation={"x": X}) as engine:
        assert any("'MaxPool_7' is not int8" in note for note in engine.report["notes"])


@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.name)
def test_only_some_may_be_8_bit(target):
    config = QuantizeConfig(only=("Conv_2", "Conv_[48]"))
    placement = place_by_config(resnet().graph, target, config)
    layers = {
        row.node for row in placement.decisions if row.is_int8 and row.op_type in ("Conv", "Gemm", "Add")
    }
    assert layers == {"Conv_2", "Conv_4", "Conv_8"}
    reasons = {row.node: row.reason for row in placement.decisions}
    assert reasons["Conv_0"] == "none of those that may be 8-bit: 'Conv_2', 'Conv_[48]'"


def test_only_nothing_is_an_error():
    with pytest.raises(UsageError, match="no layer matches --only 'Conv2'") as caught:
        place_by_config(resnet().graph, OPENVINO, QuantizeConfig(only=("Conv2",)))
    assert caught.value.hint == "'Conv_2'"
    only = QuantizeConfig(only=("Conv_2",))
    with pytest.raises(UsageError, match="no codes are asked for"):
        read_constraints(resnet(), replace(CONFIG, precisions=frozenset({"fp32"}), quantize=only))


def test_a_model_that_is_quantized_already():
    model = make_model(write(quantized(resnet(), CUDA, {"x": X})))
    with pytest.raises(UsageError, match="that the model was quantized to"):
        read_constraints(model, ruled(GPU, "Conv_0:fp16"))
    with pytest.raises(UsageError, match="quantized already"):
        read_constraints(model, replace(GPU, quantize=QuantizeConfig(only=("Conv_0",))))
