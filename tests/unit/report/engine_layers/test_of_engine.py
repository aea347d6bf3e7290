# SPDX-License-Identifier: Apache-2.0
"""The layers of engines: what they compute, in what, from what, as the library or the program tells it."""

import sys
from collections import Counter

import numpy as np
import pytest

from quantrt.errors import DataError
from quantrt.plan.lower import lower_to_onnxruntime
from quantrt.plan.plan import Plan
from quantrt.plan.program_json import program_from_model
from quantrt.quantize.qdq.write import write
from quantrt.quantize.targets.onnxruntime import ORT
from quantrt.report.engine_layers.layer import CHANNELS_LAST, EngineLayer, is_conversion, size_bytes
from quantrt.report.engine_layers.of_engine import engine_layers
from quantrt.runtime.engine import Engine
from quantrt.runtime.layer_times import time_layers
from tests.nets import net, quantized, samples, weights
from tests.plans import LIBRARIES, make_plan
from tests.programs import cuda_plan
from tests.unit.report.quantized_plans import IMAGES, cuda_plan_of, int8_plan, plan_of

SHAPES = {"x": (1, 3, 16, 16)}
CONV_OPERATIONS = {
    "c0": 2 * 256 * 8 * 27,
    "c1": 2 * 256 * 8 * 72,
    "c2": 2 * 256 * 8 * 72,
    "c3": 2 * 64 * 16 * 72,
}
"""Of one image, two for every multiply-add, by the convolution's output."""


def convolutions(plan: Plan, layers: tuple[EngineLayer, ...]) -> list[EngineLayer]:
    """The layers that compute the plan's convolutions, in the model's order."""
    names = [layer.name for layer in plan.layers if layer.op_type == "Conv"]
    return [next(layer for layer in layers if name in layer.nodes) for name in names]


@pytest.mark.parametrize("library", LIBRARIES)
def test_every_node_is_in_one_layer_with_its_work_and_its_weights(library: str):
    plan = int8_plan(library)
    layers = engine_layers(plan, shapes=SHAPES)
    assert len({layer.name for layer in layers}) == len(layers)
    counts = Counter(node for layer in layers for node in layer.nodes)
    assert set(counts) == {layer.name for layer in plan.layers} and set(counts.values()) == {1}
    found = convolutions(plan, layers)
    assert [layer.operations for layer in found] == list(CONV_OPERATIONS.values())
    sizes = [8 * 27, 8 * 72, 8 * 72, 16 * 72]
    for layer, size in zip(found, sizes, strict=True):
        assert layer.precision == layer.computes_in == "int8"
        assert layer.reason == "it multiplies 8-bit codes"
        assert size <= layer.weights["int8"] <= size + 2 * 16, "codes, and at most a zero point per channel"
        assert layer.bytes_moved == sum(layer.weights.values()) + sum(
            size_bytes(form.dims, form.dtype) or 0 for form in {*layer.inputs, *layer.outputs}
        )


@pytest.mark.parametrize("library", LIBRARIES)
def test_work_grows_with_the_batch_and_its_weights_do_not(library: str):
    plan = int8_plan(library)
    one, four = (engine_layers(plan, shapes={"x": (batch, 3, 16, 16)}) for batch in (1, 4))
    for small, large in zip(convolutions(plan, one), convolutions(plan, four), strict=True):
        assert large.operations == 4 * (small.operations or 0)
        assert large.weights == small.weights


@pytest.mark.parametrize("library", LIBRARIES)
def test_the_times_have_the_names_of_the_layers(library: str):
    plan = int8_plan(library)
    inputs = {"x": np.zeros((1, 3, 16, 16), np.float32)}
    with Engine(plan) as engine:
        times = time_layers(engine, inputs, runs=3, warmup_runs=1)
    assert set(times.names) == {layer.name for layer in engine_layers(plan, shapes=SHAPES)}
    assert len(times.run_ms) == 3 and {len(row) for row in times.times_ms} == {3}
    assert 0 < sum(times.median_ms.values())
    assert all(time_ms >= 0 for row in times.times_ms for time_ms in row)


@pytest.mark.parametrize("library", LIBRARIES)
def test_the_model_s_inputs_and_outputs_have_their_names(library: str):
    plan = int8_plan(library)
    layers = engine_layers(plan, shapes=SHAPES)
    read = {form.name for layer in layers for form in layer.inputs}
    made = {form.name for layer in layers for form in layer.outputs}
    assert {spec.name for spec in plan.inputs} <= read
    assert {spec.name for spec in plan.outputs} <= made


@pytest.mark.parametrize("library", LIBRARIES)
def test_codes_come_from_a_conversion_that_no_node_asked_for(library: str):
    layers = engine_layers(int8_plan(library), shapes=SHAPES)
    first = next(layer for layer in layers if is_conversion(layer))
    assert first.inputs[0].name == "x" and first.inputs[0].dtype == "float32"
    assert first.outputs[0].dtype in ("uint8", "int8")
    assert "conversion" in first.reason


def test_a_model_may_be_deeper_than_python_calls_nest():
    depth = sys.getrecursionlimit() // 2 + 100  # a call and its generator for each layer were too many
    steps = "".join(f"h{number + 1} = MatMul(h{number}, w{number})\n" for number in range(depth))
    weights = {f"w{number}": np.eye(4, dtype=np.float32) for number in range(depth)}
    plan = make_plan("openvino", f"g (float[1,4] h0) => (float[1,4] h{depth}) {{ {steps} }}", weights)
    layers = engine_layers(plan, shapes={"h0": (1, 4)})
    assert sum(layer.weights.get("float32", 0) for layer in layers) == depth * 64


@pytest.mark.parametrize("library", LIBRARIES)
def test_shapes_that_the_model_cannot_have_are_an_error(library: str):
    with pytest.raises(DataError):
        engine_layers(int8_plan(library), shapes={"x": (1, 4, 16, 16)})


def test_regions_of_a_gpu_tell_sizes_work_and_rivals():
    pytest.importorskip("torch", reason="programs are made in torch")
    plan = cuda_plan_of("H200")
    layers = engine_layers(plan)
    found = convolutions(plan, layers)
    batch = IMAGES["x"].shape[0]
    assert [layer.operations for layer in found] == [batch * count for count in CONV_OPERATIONS.values()]
    assert {layer.precision for layer in found} == {"int8"}
    assert found[1].inputs[0].dims == (batch, 8, 16, 16) and found[1].inputs[0].layout == CHANNELS_LAST
    assert found[1].inputs[0].dtype == "int8"
    assert found[0].attributes["kernel"] == [3, 3] and found[0].attributes["pads"] == [1, 1, 1, 1]
    assert found[0].tactic is not None and found[0].tactic not in {rival.name for rival in found[0].rivals}
    assert any("excluded" in rival.reason for rival in found[0].rivals)
    conversion = next(layer for layer in layers if layer.name.startswith("convert"))
    assert is_conversion(conversion) and found[0].name in conversion.reason
    weights = program_from_model(plan.model).weights
    assert sum(sum(layer.weights.values()) for layer in layers) == sum(a.nbytes for a in weights.values())


def test_an_older_engine_for_a_gpu_tells_what_it_holds():
    layers = {layer.name: layer for layer in engine_layers(cuda_plan())}
    conv = layers["region of pool"]
    assert (conv.kind, conv.precision, conv.median_us) == ("Conv", "int8", 12.34)
    assert (conv.operations, conv.bytes_moved, conv.rivals, conv.inputs) == (None, None, (), ())
    assert [layer.kind for layer in layers.values()] == ["Conv", "Host", "View", "Rows"]


def test_an_estimate_is_no_measurement():
    pytest.importorskip("torch", reason="programs are made in torch")
    layers = [layer for layer in engine_layers(cuda_plan_of("A10", device=None)) if layer.operations]
    assert layers
    assert all(layer.median_us is None for layer in layers)
    assert all(layer.attributes["estimated_us"] > 0 for layer in layers)


def test_a_gpu_without_a_kernel_says_why():
    pytest.importorskip("torch", reason="programs are made in torch")
    plan = cuda_plan_of("T4")
    found = convolutions(plan, engine_layers(plan))
    assert {layer.precision for layer in found} == {"int8"}
    reasons = [rival.reason for layer in found for rival in layer.rivals]
    assert any("compute capability 75" in reason for reason in reasons), reasons


def test_rows_that_are_moved_for_convolutions_compute_no_node():
    """Activations belong to the convolution in front of them, not to what moves its codes."""
    text = """net (float[N,24] x) => (float[N,8] y) {
        a = Gemm(x, w1)
        b = Relu(a)
        c = Gemm(b, w2)
        d = Relu(c)
        y = Gemm(d, w3)
    }"""
    model = net(text, weights({"w1": (24, 16), "w2": (16, 32), "w3": (32, 8)}))
    codes = quantized(model, ORT, {"x": samples(32, 24)})
    plan = plan_of(codes, lower_to_onnxruntime(write(codes)), "fp32")
    layers = {layer.name: layer for layer in engine_layers(plan, shapes={"x": (1, 24)})}
    moves = [layer for layer in layers.values() if layer.kind == "Reshape"]
    assert [layer.nodes for layer in moves] == [(), ()]
    assert {layer.reason for layer in moves} == {"a conversion of layout for the kernels beside it"}
    convolved = [layer.nodes for layer in layers.values() if layer.kind == "QLinearConv"]
    assert convolved == [("Gemm_0", "Relu_1"), ("Gemm_2", "Relu_3")]
