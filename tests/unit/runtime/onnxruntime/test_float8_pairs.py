# SPDX-License-Identifier: Apache-2.0
"""Models with float8 pairs: ONNX Runtime computes what they say, in engines and as the float oracle."""

from contextlib import closing

import ml_dtypes
import numpy as np
import pytest

from quantrt.ir.session import float_session
from quantrt.plan.lower import lower_to_onnxruntime
from quantrt.plan.plan import ExecOptions
from quantrt.reference.metrics import sqnr_db
from quantrt.runtime.executor import open_executor
from tests.nets import net, samples

IMAGE = {"x": samples(2, 16, 8, 8)}
TEXT = """net (float[N,16,8,8] x) => (float[N,16,8,8] y) {
  qw = QuantizeLinear<axis=0>(w, ws, wz) dw = DequantizeLinear<axis=0>(qw, ws, wz)
  q0 = QuantizeLinear(x, s, z) d0 = DequantizeLinear(q0, s, z)
  c0 = Conv<pads=[1,1,1,1]>(d0, dw, b) r0 = Relu(c0)
  q1 = QuantizeLinear(r0, s, z) d1 = DequantizeLinear(q1, s, z)
  c1 = Conv<pads=[1,1,1,1]>(d1, dw, b) sum = Add(c1, d1) y = Relu(sum)
}"""


@pytest.fixture
def model(rng):
    e4m3 = ml_dtypes.float8_e4m3fn
    arrays = {
        "w": (rng.standard_normal((16, 16, 3, 3)) / 12).astype(np.float32),
        "ws": rng.uniform(0.0005, 0.001, 16).astype(np.float32),
        "wz": np.zeros(16, e4m3),
        "b": rng.standard_normal(16).astype(np.float32),
        "s": np.asarray(0.01, np.float32),
        "z": np.asarray(0, e4m3),
    }
    return net(TEXT, arrays, opset=19)


def test_an_engine_computes_what_is_written(model):
    (want,) = float_session(model.graph, optimize=False).run(None, IMAGE)
    with closing(open_executor(lower_to_onnxruntime(model.graph), ExecOptions())) as executor:
        assert sqnr_db(want, executor.run(IMAGE)["y"]) > 40


def test_the_oracle_does_too(model):
    (want,) = float_session(model.graph, optimize=False).run(None, IMAGE)
    (got,) = float_session(model.graph, optimize=True).run(None, IMAGE)
    assert sqnr_db(want, got) > 40
