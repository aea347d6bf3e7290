# SPDX-License-Identifier: Apache-2.0
"""What shows int8 codes of ONNX Runtime computes them as the engine does, that has them as uint8."""

import platform
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest

from quantrt.calibrate.dataset import open_dataset
from quantrt.config import CompareConfig
from quantrt.plan.plan import ExecOptions, LibraryModel
from quantrt.report.codes.compare_codes import compare_codes
from quantrt.report.codes.unsigned import X86, unsigned_codes
from quantrt.report.subject import open_subject
from quantrt.runtime.onnxruntime.watch import optimized_graph
from tests.nets import samples
from tests.plans import make_model

pytestmark = pytest.mark.skipif(platform.machine() not in X86, reason="ONNX Runtime keeps int8 here")

NET = """net (float[N,4,6,6] x) => (float[N,4,6,6] y) {
  q0 = QuantizeLinear(x, s, z)  d0 = DequantizeLinear(q0, s, z)  dw = DequantizeLinear(w, sw, z)
  c = Conv<pads=[1,1,1,1]>(d0, dw)
  q1 = QuantizeLinear(c, t, z)  d1 = DequantizeLinear(q1, t, z)
  e = Conv<pads=[1,1,1,1]>(d1, dw)
  q2 = QuantizeLinear(e, t, z)  y = DequantizeLinear(q2, t, z)
}"""
CODES = ("q0", "q1", "q2")


def weights() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    scales = {"s": np.float32(0.03), "t": np.float32(0.05), "sw": np.float32(0.01)}
    return {**scales, "z": np.int8(0), "w": rng.integers(-127, 128, (4, 4, 3, 3), dtype=np.int8)}


def shown(model: LibraryModel) -> LibraryModel:
    """The model with its codes as outputs."""
    proto = onnx.ModelProto.FromString(model.graph)
    proto.graph.output.extend(onnx.ValueInfoProto(name=name) for name in CODES)
    return replace(model, graph=proto.SerializeToString())


def convolutions(model: LibraryModel) -> Counter[str]:
    kinds = Counter(node.op_type for node in optimized_graph(model, ExecOptions()).graph.node)
    return Counter({kind: count for kind, count in kinds.items() if kind.endswith("Conv")})


def test_showing_codes_takes_no_convolution_out_of_codes():
    model = make_model("onnxruntime", NET, weights())
    assert convolutions(model) == Counter(QLinearConv=2)
    assert convolutions(shown(model)) == Counter(Conv=2), "as it is, the library gives up the codes"
    assert convolutions(shown(unsigned_codes(model))) == Counter(QLinearConv=2)


def test_a_file_with_int8_activations_has_the_codes_of_the_reference(tmp_path: Path):
    (tmp_path / "m.onnx").write_bytes(make_model("onnxruntime", NET, weights()).graph)
    inputs = {"x": samples(8, 4, 6, 6)}
    with open_subject(tmp_path / "m.onnx") as subject:
        data = compare_codes(subject, subject, open_dataset(inputs, subject.inputs), CompareConfig())
    assert data["passed"]
    assert [row["op_type"] for row in data["regions"]] == ["Conv", "Conv"]


def test_codes_that_the_model_gives_stay_as_they_are():
    model = make_model(
        "onnxruntime", NET.replace("float[N,4,6,6] y)", "float[N,4,6,6] y, int8[N,4,6,6] q1)"), weights()
    )
    points = {
        node.output[0]: node.input[2]
        for node in onnx.ModelProto.FromString(unsigned_codes(model).graph).graph.node
        if node.op_type == "QuantizeLinear"
    }
    assert points == {"q0": "z_unsigned", "q1": "z", "q2": "z_unsigned"}


def test_a_model_without_such_codes_is_itself():
    model = make_model(
        "onnxruntime",
        NET.replace(", z)", ", u)"),
        {**weights(), "u": np.uint8(128), "w": np.ones((4, 4, 3, 3), np.uint8)},
    )
    assert unsigned_codes(model) is model
