# SPDX-License-Identifier: Apache-2.0
"""Fake quantization rounds as the package does everywhere, and its gradients are those of the paper."""

import math

import numpy as np
import pytest
import torch

from quantrt.dtypes import INT8, UINT8
from quantrt.quantize.scales.qparams import QParams, bias_qparams, dequantize, quantize_array
from quantrt.torch.qat.fake_quant import LEAST_RATIO, FakeQuantize, FakeQuantizeBias


def grid(scale, zero_point=0, dtype=INT8, axis=None, qmin=-128, qmax=127):
    scale = np.asarray(scale, np.float32)
    return QParams(scale, np.full(scale.shape, zero_point, np.int32), dtype, axis, qmin, qmax)


GRIDS = [
    pytest.param(grid(0.037), id="int8"),
    pytest.param(grid(0.011, 31, UINT8, None, 0, 255), id="uint8 with zero point"),
    pytest.param(grid([0.01, 0.3, 2.0], axis=1, qmin=-127), id="per channel"),
    pytest.param(grid([0.5, 0.25, 0.7], axis=1, qmin=-7, qmax=7), id="4 bits"),
]


@pytest.mark.parametrize("qparams", GRIDS)
def test_values_are_those_of_the_reference(qparams, rng):
    x = rng.normal(0, 5, (7, 3, 41)).astype(np.float32)
    scale = qparams.broadcast(qparams.scale, 3)
    x[0] = (np.arange(3 * 41, dtype=np.float32).reshape(3, 41) - 60.5) * scale  # halves round to even
    module = FakeQuantize(qparams, elements=x[0].size, rank=3, is_learned=True)
    got = module(torch.from_numpy(x)).detach().numpy()
    assert np.array_equal(got, dequantize(quantize_array(x, qparams), qparams))


def test_gradients_are_those_of_the_paper():
    qparams = grid(0.5, qmin=-8, qmax=7)
    module = FakeQuantize(qparams, elements=5, rank=1, is_learned=True)
    x = torch.tensor([-9.0, -0.3, 0.1, 3.7, 8.0], requires_grad=True)  # steps -18, -0.6, 0.2, 7.4, 16
    module(x).sum().backward()
    assert x.grad.tolist() == [0.0, 1.0, 1.0, 1.0, 0.0]
    slopes = [-8.0, -1 + 0.6, 0 - 0.2, 7 - 7.4, 7.0]
    of_scale = sum(slopes) / math.sqrt(5 * 7)
    # The ratio moves the scale by 0.5 for each 1; its gradient moves the scale as the paper's would.
    assert module.ratio.grad.item() == pytest.approx(of_scale / 0.5, rel=1e-6)


def test_gradient_descent_moves_a_scale_as_if_it_were_the_parameter():
    module = FakeQuantize(grid(0.5, qmin=-8, qmax=7), elements=2, rank=1, is_learned=True)
    optimizer = torch.optim.SGD(module.parameters(), lr=0.01)
    module(torch.tensor([-9.0, 0.1])).sum().backward()
    optimizer.step()
    moved = 0.01 * (-8.0 - 0.2) / math.sqrt(2 * 7)
    assert module.scale.item() == pytest.approx(0.5 - moved, rel=1e-6)


def test_a_scale_stays_positive():
    module = FakeQuantize(grid(0.5), elements=1, rank=1, is_learned=True)
    with torch.no_grad():
        module.ratio.fill_(-3.0)
    assert module.scale.item() == pytest.approx(0.5 * LEAST_RATIO)
    assert module.qparams().scale > 0


def test_fixed_scales_are_no_parameters():
    module = FakeQuantize(grid(0.5), elements=1, rank=1, is_learned=False)
    assert list(module.parameters()) == []
    x = torch.tensor([0.3, 100.0], requires_grad=True)
    module(x).sum().backward()
    assert x.grad.tolist() == [1.0, 0.0]


def test_qparams_are_given_back_as_they_came():
    qparams = grid([0.01, 0.3, 2.0], axis=1, qmin=-127)
    module = FakeQuantize(qparams, elements=1, rank=4, is_learned=True)
    back = module.qparams()
    assert module.scale.shape == (1, 3, 1, 1)
    assert np.array_equal(back.scale, qparams.scale) and back.axis == 1


def test_a_bias_is_on_the_product_of_its_scales(rng):
    activation = FakeQuantize(grid(0.03, 7, UINT8, None, 0, 255), elements=1, rank=4, is_learned=True)
    weight = FakeQuantize(grid([0.01, 0.3, 0.002], axis=0, qmin=-127), elements=1, rank=4, is_learned=True)
    bias = rng.normal(0, 1, 3).astype(np.float32)
    got = FakeQuantizeBias(activation, weight)(torch.from_numpy(bias)).detach().numpy()
    expected = bias_qparams(activation.grid, weight.grid)
    assert np.array_equal(got, dequantize(quantize_array(bias, expected), expected))


def test_a_bias_passes_its_gradient_on():
    activation = FakeQuantize(grid(0.03), elements=1, rank=4, is_learned=True)
    weight = FakeQuantize(grid([0.01, 0.3], axis=0), elements=1, rank=4, is_learned=True)
    bias = torch.ones(2, requires_grad=True)
    FakeQuantizeBias(activation, weight)(bias).sum().backward()
    assert bias.grad.tolist() == [1.0, 1.0]
    assert weight.ratio.grad is None
