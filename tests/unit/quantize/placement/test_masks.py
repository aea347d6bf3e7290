# SPDX-License-Identifier: Apache-2.0
"""Masks of attention, huge negative numbers or minus infinity, set no range of anything that is quantized."""

import numpy as np
import pytest

from quantrt.quantize.qdq.write import write
from quantrt.quantize.targets import OPENVINO, ORT, TENSORRT
from quantrt.quantize.targets.cuda import CUDA
from quantrt.reference.metrics import sqnr_db
from tests.nets import net, quantized, run_ort, samples, weights

MASKS = {
    "added": "h = Sub(one, m) a = Mul(h, huge) s = Add(d, a)",
    "where": "b = Cast<to = 9>(m) s = Where(b, d, huge)",
}
HUGE = {
    "float32's least": np.finfo(np.float32).min,
    "a thousand millions": -1e9,
    "ten thousand": -1e4,
    "infinity": -np.inf,
}
CASES = [(mask, huge) for mask in MASKS for huge in HUGE if (mask, huge) != ("added", "infinity")]
"""0 times infinity is not a number: no exporter writes that."""


def attention(mask: str, huge: float):
    """One head over six tokens with a mask; its projections are products with constant weights."""
    body = f"""q = MatMul(x, wq) k = MatMul(x, wk) v = MatMul(x, wv) t = Transpose<perm=[0,2,1]>(k)
      d = MatMul(q, t) {MASKS[mask]} p = Softmax<axis=-1>(s) c = MatMul(p, v) y = MatMul(c, wo)"""
    arrays = weights({"wq": (16, 16), "wk": (16, 16), "wv": (16, 16), "wo": (16, 16)})
    arrays |= {"one": np.array(1, np.float32), "huge": np.array(huge, np.float32)}
    used = {name: array for name, array in arrays.items() if name != "one" or mask == "added"}
    return net(f"net (float[N,6,16] x, float[N,1,6] m) => (float[N,6,16] y) {{ {body} }}", used)


@pytest.mark.parametrize("target", [ORT, OPENVINO, TENSORRT, CUDA], ids=lambda target: target.name)
@pytest.mark.parametrize(("mask", "huge"), CASES)
def test_a_mask_sets_no_range(mask: str, huge: str, target):
    model = attention(mask, HUGE[huge])
    kept = (np.arange(6) < np.array([3, 4, 5, 6] * 8)[:, None]).astype(np.float32)[:, None]
    inputs = {"x": samples(32, 6, 16), "m": kept}
    made = quantized(model, target, inputs, method="minmax")
    assert made.activations
    assert max(float(grid.scale) for grid in made.activations.values()) < 1.0
    (want,), (got,) = run_ort(model.graph, inputs), run_ort(write(made), inputs)
    assert sqnr_db(want, got) > 25
