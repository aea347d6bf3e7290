# SPDX-License-Identifier: Apache-2.0
"""Rules for the types of layers' outputs: what they come to, and engines that keep them."""

from dataclasses import replace

import numpy as np
import pytest

from quantrt.build import build
from quantrt.config import BenchConfig, BuildConfig, CalibrationConfig, ConstraintConfig, DeviceConfig
from quantrt.constrain.constraints import Constraints, read_constraints
from quantrt.errors import UsageError
from quantrt.model.load import make_model
from quantrt.quantize.placement.placement import place
from quantrt.quantize.qdq.write import write
from quantrt.quantize.targets.cuda import CUDA
from quantrt.quantize.targets.openvino import OPENVINO
from tests.nets import net, quantized, resnet, samples

X = samples(8, 3, 16, 16)
CONFIG = BuildConfig(
    precisions=frozenset({"fp32", "int8"}),
    bench=BenchConfig(duration_s=0.02, max_duration_s=0.05, warmup_s=0.01, min_runs=3),
    calibration=CalibrationConfig(method="minmax"),
)
GPU = replace(CONFIG, device=DeviceConfig(device="cuda"))


def ruled(config: BuildConfig, *rules: str, prefer: bool = False) -> BuildConfig:
    constraints = ConstraintConfig(layer_output_types=rules, prefer_layer_output_types=prefer)
    return replace(config, constraints=constraints)


def stored(*rules: str) -> dict[str, str]:
    found, _ = read_constraints(resnet(), ruled(GPU, *rules))
    return {name: binding.dtype for name, binding in found.stored.items()}


def test_without_rules_nothing_is_asked_for():
    assert read_constraints(resnet(), CONFIG) == (Constraints(), CONFIG)


def test_what_a_kernel_stores():
    names = [node.name for node in resnet().graph.graph]
    assert names[:2] == ["Conv_0", "Relu_1"]
    assert stored("Relu_1:fp32") == {"r0": "float32"}
    assert stored("Conv_0:fp32") == {"r0": "float32"}, "inside its kernel: what that stores"
    assert stored("Conv_0:fp32", "Relu_1:int8") == {"r0": "int8"}, "the last rule counts"
    everything = stored("*:fp16", "Gemm*:fp32")
    assert everything["y"] == "float32"
    assert "flat" not in everything, "a view has no type of its own"
    assert {everything[name] for name in ("r0", "r1", "r2")} == {"float16"}


def test_codes_of_what_stores_none_are_left_out_of_a_pattern():
    table = np.arange(12, dtype=np.float32).reshape(4, 3)
    model = net(
        "net (float[4,3] x) => (float[4,3] y) { h = Relu(x) s = CumSum(h, a) y = Neg(s) }",
        {"a": np.array(0), "t": table},
    )
    found, _ = read_constraints(model, ruled(GPU, "*:int8"))
    assert sorted(found.stored) == ["h", "y"]
    assert found.without_scale == tuple(found.stored)
    with pytest.raises(UsageError, match="no kernel of it stores codes"):
        read_constraints(model, ruled(GPU, "CumSum_1:int8"))


@pytest.mark.parametrize(
    ("config", "rule", "message", "hint"),
    [
        (CONFIG, "Conv0:fp32", "the model has no layer 'Conv0'", "'Conv_0'"),
        (CONFIG, "Conv_0:fp61", "cannot read 'Conv_0:fp61'", "'fp16'"),
        (CONFIG, "Conv_0", "cannot read 'Conv_0'", None),
        (CONFIG, "Conv_0:fp16", "cannot be float16: the libraries of a CPU store float32", "--prefer"),
        (CONFIG, "Conv_0:int64", "the libraries of a CPU", "--prefer"),
        (GPU, "Conv_0:int64", "its output is a float", "--prefer"),
        (GPU, "Flatten_11:fp32", "it moves values, which keep their type", "--prefer"),
    ],
)
def test_what_cannot_be(config: BuildConfig, rule: str, message: str, hint: str | None):
    with pytest.raises(UsageError, match=message) as caught:
        read_constraints(resnet(), ruled(config, rule))
    if hint is not None:
        assert hint in str(caught.value.hint)


def test_a_rule_may_be_preferred():
    found, _ = read_constraints(resnet(), ruled(CONFIG, "Conv_0:fp16", prefer=True))
    assert found.types.broken == (
        "layer 'Conv_0' cannot be float16: the libraries of a CPU store float32, or int8 codes",
    )


def test_a_model_that_says_itself_what_is_stored():
    model = make_model(write(quantized(resnet(), CUDA, {"x": X})))
    with pytest.raises(UsageError, match="Q/DQ nodes of the model"):
        read_constraints(model, ruled(GPU, "*:fp32"))
    with pytest.raises(UsageError, match="the model itself quantizes its output"):
        read_constraints(model, ruled(CONFIG, "Relu_1:fp32"))


def test_on_a_cpu_a_layer_and_its_readers_stay_float():
    model = resnet()
    found, config = read_constraints(
        model, ruled(replace(CONFIG, precisions=frozenset({"int8", "bf16"})), "Relu_1:fp32")
    )
    assert "bf16" not in config.precisions
    placement = place(model.graph, OPENVINO, exclude=config.quantize.exclude)
    assert "r0" in place(model.graph, OPENVINO).values
    assert "r0" not in placement.values
    assert list(found.why_not_types(None)) == []


def test_an_engine_of_a_cpu_keeps_them():
    config = ruled(CONFIG, "Relu_1:fp32")
    with build(resnet(), config=config, calibration={"x": X}, validation={"x": X}) as engine:
        rows = {row.name: row for row in engine.plan.layers}
    assert rows["Conv_2"].precision == "fp32"


def test_codes_are_checked_in_what_is_shipped():
    config = replace(ruled(CONFIG, "Conv_0:int8"), precisions=frozenset({"fp32"}))
    with pytest.raises(UsageError, match="cannot be int8: the engine that is shipped has none"):
        build(resnet(), config=config)
    preferred = replace(ruled(CONFIG, "Conv_0:int8", prefer=True), precisions=frozenset({"fp32"}))
    with build(resnet(), config=preferred) as engine:
        assert any("cannot be int8" in note for note in engine.report["notes"])
    model = resnet()
    eight = quantized(model, OPENVINO, {"x": X})
    found, _ = read_constraints(model, ruled(CONFIG, "Relu_1:int8", "Gemm_12:int8"))
    assert list(found.why_not_types(eight)) == [
        "layer 'Gemm_12' cannot be int8: nothing reads its output as codes"
    ]
