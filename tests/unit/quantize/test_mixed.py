# SPDX-License-Identifier: Apache-2.0
"""Nodes that go back to floats leave all others as they were fitted."""

import numpy as np

from quantrt.config import CalibrationConfig, QuantizeConfig
from quantrt.quantize.fit.fit import FLOAT_SUMS, fit, observe_reference
from quantrt.quantize.mixed import keep_float
from quantrt.quantize.targets import OPENVINO
from tests.nets import net, observe, samples, weights


def test_sums_that_were_fitted_in_floats_stay_so():
    """Their sides have no grids to go back to."""
    text = """net (float[N,4,8,8] x) => (float[N,4,i,j] y) {
      a = Conv(x, wa) b = Conv(x, wb) s = Add(a, b) c = Relu(s) y = Conv(c, last) }"""
    arrays = weights(dict.fromkeys(("wa", "wb", "last"), (4, 4, 1, 1)))
    arrays["wa"][0], arrays["wb"][0] = 100.0, -100.0
    model, x = net(text, arrays), {"x": samples(8, 4, 8, 8)}
    config = QuantizeConfig(float_sums=True, equalization=False)
    stats, reference = observe(model, (OPENVINO,), x), observe_reference(model, [x], config)
    options = CalibrationConfig(method="minmax")
    fitted = fit(model, stats, OPENVINO, reference, config=config, calibration=options)
    assert fitted.method == "minmax" + FLOAT_SUMS
    mixed = keep_float(fitted, {"Conv_4": "kept"}, config)
    codes = {row.node: row.is_int8 for row in mixed.model.placement.decisions}
    assert [codes[name] for name in ("Conv_0", "Conv_1", "Add_2", "Conv_4")] == [True, True, False, False]
    for name, grid in mixed.model.activations.items():
        np.testing.assert_array_equal(grid.scale, fitted.model.activations[name].scale)
    again = keep_float(mixed, {"Conv_0": "kept"}, config)
    codes = {row.node: row.is_int8 for row in again.model.placement.decisions}
    assert not (codes["Conv_0"] or codes["Add_2"] or codes["Conv_4"])
