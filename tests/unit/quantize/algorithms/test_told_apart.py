# SPDX-License-Identifier: Apache-2.0
"""Ranges end where what reads the values makes no difference any more, and nothing is lost by it."""

import math

import numpy as np
import pytest

from quantrt.config import CalibrationConfig, QuantizeConfig
from quantrt.quantize.algorithms.told_apart import told_apart
from quantrt.quantize.qdq.write import write
from quantrt.quantize.quantize import quantize
from quantrt.quantize.targets import ORT
from tests.nets import net, observe, run_ort, weights

BOUNDS = {
    "HardSwish(x)": (-3.0, math.inf),
    "HardSigmoid <alpha = 0.25, beta = 0.25> (x)": (-1.0, 3.0),
    "HardSigmoid <alpha = -1.0> (x)": (-math.inf, math.inf),
    "Sigmoid(x)": (-math.inf, math.inf),
}


@pytest.mark.parametrize("reader", BOUNDS)
def test_bounds_are_those_of_the_function(reader):
    model = net(f"net (float[N,4] a) => (float[N,4] y) {{ x = Neg(a) y = {reader} }}")
    assert told_apart(model.graph.graph, {"x"}) == {"x": BOUNDS[reader]}


def test_the_widest_of_all_readers_counts_and_an_output_is_read_wholly():
    model = net(
        "net (float[N,4] a) => (float[N,4] y, float[N,4] z, float[N,4] w, float[N,4] q) "
        "{ x = Neg(a) y = HardSwish(x) z = HardSigmoid <alpha = 0.25, beta = 1.0> (x) "
        "u = Abs(y) w = HardSwish(u) q = Sigmoid(u) }"
    )
    every = (-math.inf, math.inf)
    found = told_apart(model.graph.graph, {"x", "y", "u"})
    assert found == {"x": (-4.0, math.inf), "y": every, "u": every}


def test_codes_behind_a_convolution_begin_where_hard_swish_does(rng):
    """Sums of -40 to 40 get codes from -3 to 40: steps are little more than half as wide as of all."""
    arrays = weights({"w": (8, 4, 1, 1), "w2": (4, 8, 1, 1)})
    model = net(
        "net (float[N,4,8,8] x) => (float[N,4,8,8] y) { c = Conv(x, w) h = HardSwish(c) y = Conv(h, w2) }",
        arrays,
    )
    x = {"x": rng.standard_normal((16, 4, 8, 8)).astype(np.float32) * 20}
    stats, config = observe(model, (ORT,), x), QuantizeConfig(bias_correction=False)
    made = quantize(model, stats, ORT, config, CalibrationConfig(method="minmax"))
    grid, seen = made.activations["c"], stats.tensors["c"]
    assert seen.lo < -20
    assert grid.scale == pytest.approx((seen.hi + 3.0) / 255, rel=1e-6)
    assert int(grid.zero_point) == round(3.0 / float(grid.scale))
    (want,), (got,) = run_ort(model.graph, x), run_ort(write(made), x)
    assert np.square(want - got).mean() < np.square(want).mean() * 10**-3.5
