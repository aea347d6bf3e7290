# SPDX-License-Identifier: Apache-2.0
"""What changes between codes and floats in a plan for a GPU: counted from a model, and from a program."""

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from quantrt.model.load import load_model, make_model
from quantrt.model.model import Model
from quantrt.quantize.qdq.write import write
from quantrt.quantize.targets.cuda import CUDA
from quantrt.report.inspect.conversions import conversions_of_model, conversions_of_program, show_conversions
from tests.convnets import NETWORKS
from tests.nets import net, quantized, resnet, samples, weights

IMAGES = {"x": samples(4, 3, 16, 16)}
INPUT = {"tensor": "x", "from": "float32", "to": "int8", "reason": "an input of the model"}

FLOAT_BETWEEN = """net (float[1,3,8,8] x) => (float[1,4,8,8] y) {
  a = Conv<pads=[1,1,1,1]>(x, w0)
  e = Erf(a)
  s = Softmax<axis=3>(e)
  p = Pad(s, pads)
  b = Conv(p, w1)
  y = Sigmoid(b)
}"""


def between() -> Model:
    arrays = weights({"w0": (4, 3, 3, 3), "w1": (4, 4, 3, 3)})
    return net(FLOAT_BETWEEN, {**arrays, "pads": np.array([0, 0, 1, 1, 0, 0, 1, 1], np.int64)})


def test_a_residual_network_changes_at_its_ends():
    found = conversions_of_model(resnet())
    assert found["reformats"] == [INPUT]
    assert found["convolutions"] == 4
    assert len(found["float_convolutions"]) <= 1
    assert json.loads(json.dumps(found)) == found


def test_what_torch_runs_between_products_is_told_with_its_reason():
    found = conversions_of_model(between())
    assert [row["tensor"] for row in found["reformats"]] == ["x", "p"]
    assert found["reformats"][1]["reason"].endswith("(nodes) stores float16")
    first, last = found["float_convolutions"]
    assert "read as floats by" in first["reason"]
    assert last["reason"] == "its result is an output of the model"


def test_a_model_with_pairs_is_read_as_it_is():
    source = write(quantized(resnet(), CUDA, IMAGES))
    found = conversions_of_model(make_model(source))
    assert found["reformats"] == [INPUT] and found["convolutions"] == 4


def test_a_program_tells_the_same_as_its_model():
    pytest.importorskip("torch", reason="programs run in torch")
    from quantrt.config import TACTIC_SOURCES, CudaConfig
    from quantrt.gpu import gpu_named
    from quantrt.plan.program_json import program_from_model
    from quantrt.tactics.cuda.lower import CudaLowering

    model = resnet()
    config = CudaConfig(exclude_tactic_sources=TACTIC_SOURCES, builder_optimization_level=0)
    lowering = CudaLowering(model, config, IMAGES, gpu=gpu_named("h200"), device="cpu")
    lowered, _ = lowering.lower(quantized(model, CUDA, IMAGES), "fp16")
    assert conversions_of_program(program_from_model(lowered)) == conversions_of_model(model)


@pytest.mark.parametrize(
    ("name", "reformats", "floats"),
    [
        ("cifar10_resnet8", 1, 1),
        ("cifar10_resnet8_large", 1, 1),
        ("kws_dscnn", 1, 1),
        ("vww_mobilenet_v1_025_96", 1, 1),
    ],
)
def test_real_networks_change_at_their_ends_alone(
    name: str, reformats: int, floats: int, shared_data: Callable[[str], Path]
):
    found = conversions_of_model(load_model(shared_data(f"models/{name}.onnx")))
    assert len(found["reformats"]) <= reformats
    assert len(found["float_convolutions"]) <= floats


@pytest.mark.parametrize(("name", "convolutions"), [("resnet18", 20), ("resnet50", 53), ("mobilenetv2", 52)])
def test_well_known_networks_change_at_their_ends_alone(name: str, convolutions: int):
    found = conversions_of_model(NETWORKS[name]())
    assert found["convolutions"] == convolutions, "every one of them reads codes"
    assert len(found["reformats"]) <= 1
    assert len(found["float_convolutions"]) <= 1


def test_of_many_the_first_are_shown(capsys: pytest.CaptureFixture[str]):
    rows = [{"name": f"conv{i}", "reason": "read as floats by 'n' (Nodes)"} for i in range(11)]
    data = {"reformats": [INPUT], "convolutions": 12, "float_convolutions": rows}
    show_conversions("int8 on a GPU", data, layers=False)
    text = capsys.readouterr().out
    assert "1 copy changes the element type, 11 of the 12 convolutions of codes write floats" in text
    assert "conv6" in text and "conv7" not in text and "and 4 more: --layers" in text
    show_conversions("int8 on a GPU", data, layers=True)
    assert "conv10" in capsys.readouterr().out
