# SPDX-License-Identifier: Apache-2.0
"""Activations that clip, done on codes."""

import numpy as np
import pytest

from quantrt.calibrate.given import Given, share_scales
from quantrt.config import CalibrationConfig, QuantizeConfig
from quantrt.dtypes import UINT8
from quantrt.model.model import Model
from quantrt.quantize.qdq.clipped_codes import clip_codes
from quantrt.quantize.qdq.write import write
from quantrt.quantize.quantize import quantize
from quantrt.quantize.scales.qparams import QParams, choose_qparams, given_qparams, quantize_array
from quantrt.quantize.targets.onnxruntime import ORT
from quantrt.quantize.targets.openvino import OPENVINO
from tests.nets import net, nodes, ort_kernels, resnet, run_ort, samples, weights

GRID = given_qparams(0.05, dtype=UINT8, qmin=0, qmax=255)


def after(activations: str, constants: str = "") -> Model:
    text = f"""net (float[N,3,8,8] x) => (float[N,4,8,8] y) {{
      {constants} c = Conv<pads=[1,1,1,1]>(x, w) {activations} y = Conv<pads=[1,1,1,1]>(a, v) }}"""
    return net(text, weights({"w": (4, 3, 3, 3), "v": (4, 4, 3, 3)}))


SIX = "zero = Constant<value_float=0.0>() six = Constant<value_float=6.0>()"


@pytest.mark.parametrize(
    ("activations", "apply"),
    [
        ("a = Relu(c)", lambda x: np.maximum(x, 0)),
        ("a = Clip(c, zero, six)", lambda x: np.clip(x, 0, 6)),
        ("b = Relu(c) a = Clip(b, zero, six)", lambda x: np.clip(x, 0, 6)),
        ("b = Clip(c, , six) a = Relu(b)", lambda x: np.clip(x, 0, 6)),
    ],
)
def test_codes_of_a_clipped_value_are_clipped_codes(activations: str, apply, rng: np.random.Generator):
    graph = after(activations, SIX).graph.graph
    value = next(v for node in graph for v in node.outputs if v.name == "a")
    found = clip_codes(value, GRID)
    assert found is not None and found.source.name == "c"
    x = np.concatenate(
        [rng.normal(scale=8, size=100000).astype(np.float32), np.arange(-9, 9, 0.025, np.float32)]
    )
    want = quantize_array(apply(x), GRID)
    assert np.array_equal(np.clip(quantize_array(x, GRID), found.lo, found.hi), want)


def test_a_grid_that_ends_at_the_bounds_needs_nothing():
    graph = after("a = Relu(c)").graph.graph
    value = next(v for node in graph for v in node.outputs if v.name == "a")
    zero, six = np.float32(0), np.float32(6)
    assert (
        clip_codes(value, choose_qparams(zero, six, dtype=UINT8, symmetric=False, qmin=0, qmax=255)) is None
    )


def test_what_others_read_before_the_activation_stays():
    graph = after("a = Relu(c) d = Sigmoid(c)").graph.graph
    both = net(
        """net (float[N,3,8,8] x) => (float[N,4,8,8] a, float[N,4,8,8] d)
        { c = Conv<pads=[1,1,1,1]>(x, w) a = Relu(c) d = Sigmoid(c) }""",
        weights({"w": (4, 3, 3, 3)}),
    ).graph.graph
    assert clip_codes(next(v for n in both for v in n.outputs if v.name == "a"), GRID) is None
    assert clip_codes(next(v for n in graph for v in n.outputs if v.name == "a"), GRID) is not None


def given(model: Model, inputs: dict) -> Given:
    names = [v.name for node in model.graph.graph for v in node.outputs]
    scales = dict.fromkeys([*inputs, *names], float(np.float32(0.04)))
    return share_scales(model.graph.graph, scales, "test")


def quantized_on(model: Model, target, inputs: dict):
    return quantize(model, None, target, QuantizeConfig(), CalibrationConfig(), given=given(model, inputs))


def test_symmetric_codes_run_in_integer_kernels_of_onnxruntime():
    model, inputs = resnet(), {"x": samples(2, 3, 16, 16)}
    made = quantized_on(model, ORT, inputs)
    graph = write(made)
    assert {(qparams.dtype.name, int(qparams.zero_point)) for qparams in made.activations.values()} == {
        ("uint8", 128)
    }
    kernels = ort_kernels(graph)
    assert kernels["QLinearConv"] == 4
    assert kernels["FusedConv"] == kernels["Conv"] == kernels["Relu"] == 0
    assert not nodes(graph, "Relu")
    assert run_ort(graph, inputs)[0].shape == (2, 5)


def test_clipping_codes_changes_no_result(monkeypatch: pytest.MonkeyPatch):
    model, inputs = resnet(), {"x": samples(4, 3, 16, 16)}
    made = quantized_on(model, ORT, inputs)
    (codes,) = run_ort(write(made), inputs)
    monkeypatch.setattr("quantrt.quantize.qdq.write.clip_codes", lambda value, qparams: None)
    plain = write(made)
    assert nodes(plain, "Relu")
    assert np.array_equal(run_ort(plain, inputs)[0], codes)


def test_other_targets_keep_their_activations():
    model, inputs = resnet(), {"x": samples(2, 3, 16, 16)}
    made = quantized_on(model, OPENVINO, inputs)
    assert {(q.dtype.name, int(q.zero_point)) for q in made.activations.values()} == {("int8", 0)}
    assert len(nodes(write(made), "Relu")) == len(nodes(model.graph, "Relu"))


def test_a_grid_of_given_codes_is_int8_s_own_bit_for_bit(rng: np.random.Generator):
    x = rng.normal(size=4096).astype(np.float32)
    for scale in np.exp(rng.normal(size=50)).astype(np.float32) / 100:
        signed, unsigned = (
            given_qparams(float(scale)),
            given_qparams(float(scale), dtype=UINT8, qmin=0, qmax=255),
        )
        assert (
            isinstance(signed, QParams)
            and signed.scale.tobytes() == unsigned.scale.tobytes() == scale.tobytes()
        )
        codes = quantize_array(x, signed)
        assert codes.dtype == np.int8
        assert np.array_equal(quantize_array(x, unsigned).astype(int) - 128, codes)
