# SPDX-License-Identifier: Apache-2.0
"""What is told of trained models before a build: no false alarm, and what was planted in them."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from quantrt.calibrate.dataset import open_dataset
from quantrt.config import QuantizeConfig
from quantrt.model.load import load_model
from quantrt.quantize.targets.openvino import OPENVINO
from quantrt.trouble.find import find_trouble
from quantrt.trouble.finding import TROUBLE, Finding
from quantrt.trouble.scene import make_scene

PREPROCESS = "scale=1,mean=125.307;122.961;113.8575,std=62.985;62.0925;66.708"

Data = Callable[[str], Path]


def told(path: Path, pictures: Path) -> tuple[Finding, ...]:
    model = load_model(path)
    data = open_dataset(pictures, model.inputs, preprocess=PREPROCESS)
    config = QuantizeConfig()
    return find_trouble(make_scene(model, OPENVINO, is_gpu=False, config=config, data=data, samples=4))


@pytest.mark.parametrize("name", ["cifar10_resnet20", "cifar10_vit_tiny_d9"])
def test_no_false_alarm(name: str, shared_data: Data):
    assert not told(shared_data(f"models/{name}.onnx"), shared_data("images/cifar10_calibration.zip"))


def test_planted_outliers_are_all_that_is_found(shared_data: Data, tmp_path: Path):
    model = onnx.load(shared_data("models/cifar10_vit_tiny_d9.onnx"))
    tensors = {tensor.name: tensor for tensor in model.graph.initializer}
    planted = ("/blocks/blocks.1/attn/qkv/MatMul", "/blocks/blocks.6/attn/qkv/MatMul")
    for block, name in ((1, planted[0]), (6, planted[1])):
        product = next(node for node in model.graph.node if node.name == name)
        rows = ((f"blocks.{block}.norm1.weight", 1e3), (f"blocks.{block}.norm1.bias", 1e3))
        for key, factor in (*rows, (product.input[1], 1e-3)):
            array = numpy_helper.to_array(tensors[key]).copy()
            array[[5, 17]] *= np.float32(factor)
            tensors[key].CopyFrom(numpy_helper.from_array(array, key))
    onnx.save(model, tmp_path / "planted.onnx")
    found = told(tmp_path / "planted.onnx", shared_data("images/cifar10_calibration.zip"))
    assert {(one.kind, one.level) for one in found} == {("outlier channels", TROUBLE)}
    assert tuple(one.nodes for one in found) == tuple((name,) for name in planted)
    assert all("channels 5, 17 of 192" in one.figure for one in found)


def test_the_divisors_of_linear_attention(shared_data: Data):
    model = load_model(shared_data("models/cifar10_efficientvit_b0.onnx"))
    found = find_trouble(make_scene(model, OPENVINO, is_gpu=False, config=QuantizeConfig()))
    assert [one.kind for one in found] == ["attention divisor"] * 4
    assert all("kept from zero by 1e-05 only" in one.figure for one in found)
