# SPDX-License-Identifier: Apache-2.0
"""Training starts where quantization after training ends: with the same codes."""

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

from quantrt.calibrate.collect import collect
from quantrt.calibrate.dataset import open_dataset
from quantrt.config import CalibrationConfig, QuantizeConfig
from quantrt.errors import UsageError
from quantrt.ir.session import float_session
from quantrt.model.load import make_model
from quantrt.quantize.algorithms.equalization import SUFFIX
from quantrt.quantize.fit.fit import ROUNDED, UNFITTED, fit, sample_reference
from quantrt.quantize.qdq.write import write
from quantrt.quantize.quantize import observed_values
from quantrt.quantize.targets import target_named
from quantrt.torch.qat import convert, prepare
from quantrt.torch.qat.prepare import NO_PLACE
from quantrt.torch.qat.trace import trace

SAMPLES = 128
"""Enough to equalize channels by."""


class Uneven(nn.Module):
    """[N, 4, 6, 6] -> [N, 5]: channels of unlike ranges, and a convolution without bias."""

    def __init__(self, *, is_shared=False):
        super().__init__()
        self.conv = nn.Conv2d(4, 16, 3, bias=False)
        self.norm = nn.LayerNorm(256)
        self.up = nn.Linear(256, 24)
        self.other = self.norm if is_shared else nn.LayerNorm(24)
        self.mix = nn.Linear(256, 256) if is_shared else nn.Identity()
        self.head = nn.Linear(256 if is_shared else 24, 5)
        with torch.no_grad():
            self.norm.weight.copy_(torch.logspace(-2, 1, 256))
            self.up.weight.div_(self.norm.weight)
        self.is_shared = is_shared

    def forward(self, x):
        x = self.norm(torch.relu(self.conv(x)).flatten(1))
        if self.is_shared:
            return self.head(self.norm(self.mix(x)))
        return self.head(self.other(torch.relu(self.up(x))))


def uneven(**options):
    torch.manual_seed(0)
    return Uneven(**options).eval()


def images(count=SAMPLES, seed=3):
    """Of a few directions and a little of everything: some of them tell of others."""
    random, directions = torch.Generator().manual_seed(seed), torch.Generator().manual_seed(7)
    mixed = torch.randn(count, 4, generator=random) @ torch.randn(4, 144, generator=directions)
    return (mixed + 0.1 * torch.randn(count, 144, generator=random)).reshape(count, 4, 6, 6)


def quantized_after_training(net, target, config):
    """What fit() makes of the exported graph, as `quantrt quantize` calls it."""
    x = images()
    model = make_model(trace(net, (x[:2],), ({0: torch.export.Dim("batch")},)).onnx)
    samples, options = open_dataset({"x": x.numpy()}, model.inputs), CalibrationConfig()
    rules = target_named(target)
    stats = collect(model, observed_values(model, (rules,), config), samples, options)
    reference = sample_reference(model, samples, config, options)
    return fit(model, stats, rules, reference, config=config, calibration=options)


@pytest.mark.parametrize(
    ("target", "is_rounded"),
    [pytest.param("tensorrt", False, id="nearest"), pytest.param("ort", True, id="adaptive rounding")],
)
def test_codes_are_those_of_quantization_after_training(target, is_rounded):
    net, config = uneven(), QuantizeConfig(adaptive_rounding=is_rounded)
    fitted = quantized_after_training(net, target, config)
    prepared = prepare(net, images(2), images().split(32), target=target, config=config)
    assert "equalized" in fitted.method and (ROUNDED in fitted.method) == is_rounded
    assert f"training starts from ranges by {fitted.method}" in prepared.notes
    converted, written = convert(prepared), write(fitted.model)
    mine, theirs = (codes_in(model) for model in (converted, written))
    assert len(mine) >= 3
    for name, codes in theirs.items():
        assert np.array_equal(mine[name], codes), name
    feed = {"x": images(16, 9).numpy()}
    got, wanted = (float_session(model, optimize=False).run(None, feed)[0] for model in (converted, written))
    assert np.array_equal(got, wanted)


def codes_in(model):
    """Codes, scales and zero points by the node that reads them and its input."""
    return {
        (node.name.replace(SUFFIX, ""), index): value.const_value.numpy()
        for node in model.graph
        if node.op_type == "DequantizeLinear"
        for index, value in enumerate(node.inputs)
        if value is not None and value.const_value is not None
    }


def test_a_layer_without_bias_has_the_correction_as_its_bias():
    prepared = prepare(uneven(), images(2), images().split(32), target="ort").eval()
    bias = prepared.network.conv.bias
    assert isinstance(bias, nn.Parameter) and bias.any()
    with torch.no_grad():
        bias.add_(1.0)
        wanted = prepared(images(8, 9)).numpy()
    (got,) = float_session(convert(prepared), optimize=False).run(None, {"x": images(8, 9).numpy()})
    assert np.abs(got - wanted).max() < 0.02 * np.abs(wanted).max()  # a code beside a tie may differ


def test_what_two_layers_share_stays_as_it_was_trained():
    net = uneven(is_shared=True)
    assert "equalized" in quantized_after_training(net, "ort", QuantizeConfig()).method
    prepared = prepare(net, images(2), images().split(32), target="ort")
    assert torch.equal(prepared.network.norm.weight, net.norm.weight)
    assert "training starts from ranges by auto" in prepared.notes
    assert f"not equalized: {NO_PLACE}" in prepared.notes


def test_multiplications_of_smoothing_are_not_taken():
    class Behind(nn.Module):
        """A product behind a GELU, one of whose channels is large."""

        def __init__(self):
            super().__init__()
            self.up, self.down = nn.Linear(16, 32), nn.Linear(32, 5)
            with torch.no_grad():
                self.up.weight[3] *= 100.0
                self.down.weight[:, 3] /= 100.0

        def forward(self, x):
            return self.down(functional.gelu(self.up(x)))

    torch.manual_seed(0)
    x = torch.randn(SAMPLES, 16)
    config = QuantizeConfig(smoothing="multiplied")
    prepared = prepare(Behind().eval(), x[:2], x.split(32), target="ort", config=config)
    assert f"not smoothed by multiplications: {NO_PLACE}" in prepared.notes


def test_weights_alone_and_scales_per_token_are_refused():
    with pytest.raises(UsageError, match="8-bit codes"):
        prepare(uneven(), images(2), [images()], config=QuantizeConfig(weights="int4"))
    with pytest.raises(UsageError, match="static scales"):
        prepare(uneven(), images(2), [images()], config=QuantizeConfig(activations="per-token"))


def test_batches_that_come_once_and_ranges_alone():
    net = uneven()
    several = prepare(net, images(2), images().split(32), target="ort")
    once = prepare(net, images(2), iter(images().split(32)), target="ort")
    scales = [[grid.qparams().scale for _, grid in made.quantizers()] for made in (several, once)]
    assert all(np.array_equal(a, b) for a, b in zip(*scales, strict=True))
    model = make_model(once.recipe.onnx)
    names = sorted(once.recipe.placement.values)
    stats = collect(model, names, open_dataset({"x": images().numpy()}, model.inputs), CalibrationConfig())
    ranged = prepare(net, images(2), stats, target="ort")
    assert UNFITTED in ranged.notes
    assert torch.equal(ranged.network.conv.weight, net.conv.weight)
