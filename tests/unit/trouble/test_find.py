# SPDX-License-Identifier: Apache-2.0
"""Planted trouble is found where it was planted, and clean networks have none."""

from collections.abc import Mapping, Sequence

import numpy as np
import pytest

from quantrt.calibrate.collect import collect
from quantrt.config import CalibrationConfig, QuantizeConfig
from quantrt.errors import UsageError
from quantrt.model.model import Model
from quantrt.quantize.targets.cuda import CUDA
from quantrt.quantize.targets.cuda_fp8 import CUDA_FP8
from quantrt.quantize.targets.openvino import OPENVINO
from quantrt.trouble.channels import NOISE_LIMIT
from quantrt.trouble.find import find_trouble
from quantrt.trouble.finding import HANDLED, KINDS, TROUBLE, Finding
from quantrt.trouble.layer_noise import layer_noises
from quantrt.trouble.scene import Scene, make_scene
from tests.nets import dataset, net, observe, resnet, samples, weights

TARGETS = pytest.mark.parametrize("target", [OPENVINO, CUDA], ids=lambda target: target.name)

MLP = """mlp (float[N,12] x) => (float[N,6] y) {
  a = MatMul(x, w0)
  b = Relu(a)
  wide = Mul(b, factors)
  c = MatMul(wide, w1)
  d = Relu(c)
  y = MatMul(d, w2)
}"""

DEPTHWISE = """dw (float[N,8,10,10] x) => (float[N,8,10,10] y) {
  a = Conv<pads=[1,1,1,1]>(x, w0, b0)
  wide = Mul(a, factors)
  b = Conv<pads=[1,1,1,1], group=8>(wide, w1, b1)
  c = Mul(b, back)
  y = Conv(c, w2, b2)
}"""

LINEAR_ATTENTION = """linear
(float[N,4,16,8] q, float[N,4,16,8] k, float[N,4,16,8] v) => (float[N,4,16,7] y) {
  q1 = Relu(q)
  k1 = Relu(k)
  kt = Transpose<perm=[0,1,3,2]>(k1)
  kv = MatMul(kt, v)
  out = MatMul(q1, kv)
  top = Slice(out, zero, seven, last)
  sums = Slice(out, seven, eight, last)
  safe = Add(sums, eps)
  y = Div(top, safe)
}"""

MASKED = """masked (float[N,4,16,8] q, float[N,4,8,16] k, float[N,4,16,8] v, float[N,1,16,16] mask)
=> (float[N,4,16,8] y) {
  scores = MatMul(q, k)
  inverted = Sub(one, mask)
  biased = Mul(inverted, low)
  added = Add(scores, biased)
  p = Softmax<axis=-1>(added)
  y = MatMul(p, v)
}"""


def scene(model: Model, inputs: Mapping[str, np.ndarray] | None, target=OPENVINO, **config) -> Scene:
    data = None if inputs is None else dataset(model, inputs)
    options = QuantizeConfig(**config)
    return make_scene(model, target, is_gpu=target is not OPENVINO, config=options, data=data)


def found(*arguments, **config) -> tuple[Finding, ...]:
    return find_trouble(scene(*arguments, **config))


def kinds(findings: Sequence[Finding]) -> list[str]:
    assert {one.kind for one in findings} <= set(KINDS)
    return [one.kind for one in findings]


def mlp(factor: float, wide: Sequence[int] = (3,)) -> Model:
    arrays = weights({"w0": (12, 40), "w1": (40, 40), "w2": (40, 6)})
    factors = np.ones(40, np.float32)
    factors[list(wide)] = factor
    arrays["w1"] /= factors[:, None]
    return net(MLP, arrays | {"factors": factors})


def depthwise(spread: float) -> Model:
    shapes = {"w0": (8, 8, 3, 3), "b0": (8,), "w1": (8, 1, 3, 3), "b1": (8,), "w2": (8, 8, 1, 1), "b2": (8,)}
    factors = np.geomspace(1.0, spread, 8).astype(np.float32).reshape(1, 8, 1, 1)
    arrays = weights(shapes) | {"b1": np.zeros(8, np.float32), "factors": factors, "back": 1 / factors}
    return net(DEPTHWISE, arrays)


@TARGETS
def test_a_clean_network_has_none(target):
    assert not found(resnet(), {"x": samples(16, 3, 16, 16)}, target)
    assert not found(resnet(), None, target)
    assert not found(mlp(1.0), {"x": samples(24, 12)}, target)
    assert not found(depthwise(1.0), {"x": samples(16, 8, 10, 10)}, target)


@TARGETS
def test_outlier_channels_are_named_with_their_layer(target):
    [one] = found(mlp(1000.0, (3, 7)), {"x": samples(24, 12)}, target)
    assert (one.kind, one.level, one.values) == ("outlier channels", TROUBLE, ("wide",))
    assert one.nodes == ("MatMul_3",)
    assert "channels 3, 7 of 40" in one.figure
    assert "--exclude 'MatMul_3'" in one.advice


def test_what_was_advised_helps():
    model, inputs = mlp(1000.0), {"x": samples(24, 12)}
    [one] = found(model, inputs)
    assert not found(model, inputs, exclude=one.nodes)


def test_many_wide_channels_are_a_spread():
    [one] = found(mlp(300.0, range(12)), {"x": samples(24, 12)})
    assert one.kind == "channel ranges"


def test_fp8_keeps_what_int8_rounds_away():
    inputs = {"x": samples(24, 12)}
    assert kinds(found(mlp(100.0), inputs, CUDA)) == ["outlier channels"]
    assert not found(mlp(100.0), inputs, CUDA_FP8)


def test_what_harms_no_output_is_no_trouble():
    arrays = weights({"w0": (12, 40), "w1": (40, 40), "w2": (40, 6)})
    arrays["w2"][:] = 0.0  # nothing of the second product is read
    arrays["w2"][0] = 1e-6
    text = MLP.replace("y = MatMul(d, w2)", "e = MatMul(d, w2)\n  f = MatMul(b, w3)\n  y = Add(e, f)")
    factors = np.ones(40, np.float32)
    factors[3] = 1000.0
    arrays["w1"][3] /= 1000.0
    harmless = net(text, arrays | {"factors": factors} | weights({"w3": (40, 6)}))
    looked = scene(harmless, {"x": samples(24, 12)})
    suspects = [one for one in layer_noises(harmless.graph, looked.inputs) if one.noise_ratio > NOISE_LIMIT]
    assert [one.node.name for one in suspects] == ["MatMul_3"]
    assert not find_trouble(looked)


def test_depthwise_ranges():
    [one] = found(depthwise(3000.0), {"x": samples(16, 8, 10, 10)})
    assert one.kind == "depthwise ranges"
    assert one.nodes == ("Conv_2",)
    assert "of 8 channels are mostly noise" in one.figure


def test_depthwise_weights_only_with_one_scale_for_all():
    shapes = {"w0": (8, 8, 3, 3), "b0": (8,), "w1": (8, 1, 3, 3), "b1": (8,), "w2": (8, 8, 1, 1), "b2": (8,)}
    arrays = weights(shapes)
    arrays["w1"] *= np.geomspace(1.0, 1e-4, 8).astype(np.float32).reshape(8, 1, 1, 1)
    ones = np.ones((1, 8, 1, 1), np.float32)
    model, inputs = net(DEPTHWISE, arrays | {"factors": ones, "back": ones}), {"x": samples(16, 8, 10, 10)}
    assert "depthwise weights" not in kinds(found(model, inputs))
    [one] = [one for one in found(model, inputs, per_channel=False) if one.kind == "depthwise weights"]
    assert one.nodes == ("Conv_2",)


@TARGETS
def test_ranges_alone_show_a_wide_range(target):
    model, inputs = resnet(), {"x": samples(8, 3, 16, 16)}
    config = QuantizeConfig()

    def by_ranges() -> tuple[Finding, ...]:
        stats = observe(model, (target,), inputs)
        return find_trouble(make_scene(model, target, is_gpu=False, config=config, stats=stats))

    assert not by_ranges()
    inputs["x"][:, 0, 0, 0] = 300.0  # one value in 768, with 120 times the power of all others
    inputs["x"][:, :, 1:] *= 0.1
    [one] = [one for one in by_ranges() if one.values == ("x",)]
    assert one.kind == "wide range"


def linear_attention() -> Model:
    ints = {"zero": 0, "seven": 7, "eight": 8, "last": 3}
    arrays = {name: np.array([number], np.int64) for name, number in ints.items()}
    return net(LINEAR_ATTENTION, arrays | {"eps": np.array(1e-15, np.float32)})


def test_the_divisor_of_linear_attention():
    names = ("q", "k", "v")
    inputs = {name: samples(4, 4, 16, 8, seed=seed) for seed, name in enumerate(names)}
    inputs["v"][..., 7] = 1.0
    [one] = found(linear_attention(), inputs)
    assert (one.kind, one.level, one.values) == ("attention divisor", HANDLED, ("safe",))
    assert "of a step of int8" in one.figure
    [unseen] = found(linear_attention(), None, CUDA)
    assert "1e-15 only, which is 0 in fp16" in unseen.figure


def test_softmax_spelled_out_has_no_such_divisor():
    text = """spelled (float[N,4,16] x) => (float[N,4,16] y) {
      e = Exp(x)
      s = ReduceSum<keepdims=1>(e, axes)
      y = Div(e, s)
    }"""
    assert not found(net(text, {"axes": np.array([-1], np.int64)}), None)


@pytest.mark.parametrize("low", [-1e4, -1e9, -3.4028234663852886e38])
def test_mask_constants(low: float):
    arrays = {"one": np.array(1.0, np.float32), "low": np.array(low, np.float32)}
    for target in (OPENVINO, CUDA):
        [one] = found(net(MASKED, arrays), None, target)
        assert (one.kind, one.level) == ("attention mask", HANDLED)
        assert f"{low:.3g}" in one.figure
        assert ("-inf" in one.effect) == (target is CUDA and low < -65504)
    arrays["low"] = np.array(-30.0, np.float32)
    assert not found(net(MASKED, arrays), None)


def test_a_mask_that_is_quantized_is_trouble():
    text = """bad (float[N,8,6,6] x) => (float[N,8,6,6] y) {
      a = Conv(x, w, b)
      r = Relu(a)
      m = Add(r, low)
      c = Conv(m, w, b)
      y = Softmax<axis=1>(m)
      z = Relu(c)
    }"""
    arrays = weights({"w": (8, 8, 1, 1), "b": (8,)})
    mask = np.where(np.arange(8) < 3, -1e9, 0.0).astype(np.float32).reshape(1, 8, 1, 1)
    model = net(
        text.replace("float[N,8,6,6] y)", "float[N,8,6,6] y, float[N,8,6,6] z)"), arrays | {"low": mask}
    )
    [one] = [one for one in found(model, None) if one.kind == "attention mask"]
    assert one.level == TROUBLE
    assert one.values == ("m",)


def test_fp16_overflow_is_of_gpus_alone():
    text = """big (float[N,16] x) => (float[N,16] y) {
      a = Mul(x, large)
      b = Mul(a, small)
      y = LayerNormalization(a, g)
    }"""
    arrays = {"large": np.array(3e4, np.float32), "small": np.array(1e-4, np.float32)}
    model = net(text, arrays | {"g": np.ones(16, np.float32)})
    inputs = {"x": samples(8, 16)}
    overflows = found(model, inputs, CUDA)
    assert kinds(overflows) == ["fp16 overflow", "fp16 overflow"]
    assert "'a' reaches" in overflows[0].figure
    assert "squares" in overflows[1].figure
    assert not found(model, inputs, OPENVINO)
    assert not found(model, None, CUDA)


FLOAT_BETWEEN = """between (float[N,8,10,10] x) => (float[N,8,10,10] y) {
  a = Conv(x, w, b)
  s0 = Softmax<axis=1>(a)
  c = Conv(s0, w, b)
  s1 = Softmax<axis=1>(c)
  d = Conv(s1, w, b)
  y = Softmax<axis=1>(d)
}"""


def test_convolutions_that_write_floats():
    model = net(FLOAT_BETWEEN, weights({"w": (8, 8, 1, 1), "b": (8,)}))
    [one] = found(model, None)
    assert one.kind == "codes in, floats out"
    assert "3 of 3" in one.figure


def test_float_layers_between_8_bit_ones_are_counted():
    text = "pads (float[N,8,10,10] x) => (float[N,8,16,16] y) {\n"
    name = "x"
    for number in range(3):
        text += f"c{number} = Conv({name}, w, b)\n p{number} = Pad(c{number}, ends)\n"
        name = f"p{number}"
    text += f"y = Conv({name}, w, b) }}"
    ends = {"ends": np.array([0, 0, 1, 1, 0, 0, 1, 1], np.int64)}
    both = found(net(text, weights({"w": (8, 8, 1, 1), "b": (8,)}) | ends), None)
    assert kinds(both) == ["codes in, floats out", "reformats"]
    one = both[1]
    assert "3 float layers between 4" in one.figure


def test_an_exclusion_that_means_nothing_is_an_error():
    with pytest.raises(UsageError, match="nothing"):
        scene(resnet(), None, exclude=("nothing",))


def test_given_ranges_are_used_beside_samples():
    model, inputs = mlp(1000.0), {"x": samples(24, 12)}
    stats = collect(
        model, observe(model, (OPENVINO,), inputs).tensors, dataset(model, inputs), CalibrationConfig()
    )
    looked = make_scene(
        model, OPENVINO, is_gpu=False, config=QuantizeConfig(), data=dataset(model, inputs), stats=stats
    )
    assert looked.stats is stats
    assert kinds(find_trouble(looked)) == ["outlier channels"]


def test_sequences_are_not_observed():
    """A Loop that collects embeddings in a sequence, as an EmbeddingBag is exported."""
    text = """bag (float[N,12] x) => (float[M,6] y) {
      parts = SequenceConstruct(x, x) both = ConcatFromSequence<axis=0>(parts) y = MatMul(both, w)
    }"""
    model = net(text, weights({"w": (12, 6)}))
    scene = make_scene(
        model, OPENVINO, is_gpu=False, config=QuantizeConfig(), data=dataset(model, {"x": samples(4, 12)})
    )
    assert {"both", "y"} <= scene.extremes.keys() and "parts" not in scene.extremes
