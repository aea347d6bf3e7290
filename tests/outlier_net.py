# SPDX-License-Identifier: Apache-2.0
"""A network of four products, of which one cannot be quantized."""

import numpy as np

from quantrt.model.model import Model
from tests.nets import net, weights

__all__ = ["outlier_model"]

OUTLIERS = """outliers (float[N,12] x) => (float[N,6] y) {
  a = MatMul(x, w0)
  b = Relu(a)
  wide = Mul(b, factors)
  c = MatMul(wide, w1)
  d = Relu(c)
  e = MatMul(d, w2)
  f = Relu(e)
  y = MatMul(f, w3)
}"""
"""One channel of what the second product reads is a thousand times as large, and its weights are as small."""


def outlier_model() -> Model:
    shapes = {"w0": (12, 40), "w1": (40, 40), "w2": (40, 40), "w3": (40, 6)}
    arrays = weights(shapes)
    factors = np.ones(40, np.float32)
    factors[3] = 1000.0
    arrays["w1"][3] /= 1000.0
    return net(OUTLIERS, arrays | {"factors": factors})
