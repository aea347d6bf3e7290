# SPDX-License-Identifier: Apache-2.0
"""A small float engine of each library, and a Q/DQ file."""

from collections.abc import Callable
from pathlib import Path

import onnx.parser
import pytest

from quantrt.device import describe_device
from quantrt.model.file.save import save_model
from quantrt.model.load import load_model
from quantrt.plan.lower import lower_to_onnxruntime, lower_to_openvino
from quantrt.plan.plan import ExecOptions, Layer, Plan
from quantrt.plan.serialize import save_plan
from quantrt.quantize.qdq.write import write
from quantrt.quantize.targets.onnxruntime import ORT
from tests.nets import quantized, resnet, samples

TEXT = """<ir_version: 8, opset_import: ["": 13]>
g (float[n,4] x) => (float[n,4] y)
<float[4] w = {1, 2, 3, 4}>
{ h = Mul(x, w)
  y = Relu(h) }"""

LOWER = {"onnxruntime": lower_to_onnxruntime, "openvino": lower_to_openvino}


@pytest.fixture
def make_engine(tmp_path: Path) -> Callable[..., Path]:
    """make_engine(library, is_calibrated=...) -> path of an engine of TEXT; model.onnx is beside it."""

    def make(library: str, **facts: object) -> Path:
        onnx.save(onnx.parser.parse_model(TEXT), tmp_path / "model.onnx")
        model = load_model(tmp_path / "model.onnx")
        plan = Plan(
            model=LOWER[library](model.graph),
            options=ExecOptions(threads=1),
            inputs=model.inputs,
            outputs=model.outputs,
            precision="fp32",
            layers=(
                Layer(
                    name="mul", op_type="Mul", precision="int8", reason="weights are constant", sources=("a",)
                ),
                Layer(name="relu", op_type="Relu", precision="fp32", reason="excluded by name"),
            ),
            fingerprint=model.fingerprint,
            device=describe_device(),
            **facts,
        )
        save_plan(plan, tmp_path / f"{library}.qrt")
        return tmp_path / f"{library}.qrt"

    return make


@pytest.fixture
def ort_file(tmp_path: Path) -> Path:
    """A residual network for images of 16 x 16, quantized by the rules of ONNX Runtime."""
    path = tmp_path / "ort.onnx"
    save_model(write(quantized(resnet(), ORT, {"x": samples(4, 3, 16, 16)})), path)
    return path
