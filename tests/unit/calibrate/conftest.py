# SPDX-License-Identifier: Apache-2.0
"""A small convolutional model, and one that counts its runs' shapes."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest

from quantrt.model.load import load_model
from quantrt.model.model import Model

CONV_TEXT = """
<ir_version: 8, opset_import: ["" : 17]>
net (float[{n},3,{h},{w}] image) => (float[{n},5] scores)
<float[4,3,3,3] w, float[4] b, float[4,5] v>
{{
  c = Conv <pads = [1,1,1,1]> (image, w, b)
  r = Relu (c)
  s = Sigmoid (c)
  m = Mul (r, s)
  g = GlobalAveragePool (m)
  f = Flatten (g)
  scores = MatMul (f, v)
}}
"""


def weights_of(text: str, seed: int = 3) -> onnx.ModelProto:
    """The model of an ONNX text, with seeded values for the initializers it declares without any."""
    model = onnx.parser.parse_model(text)
    rng = np.random.default_rng(seed)
    declared = list(model.graph.value_info)
    used = {name for node in model.graph.node for name in node.input}
    made = {name for node in model.graph.node for name in node.output}
    for value in declared:
        if value.name in used and value.name not in made:
            shape = [dim.dim_value for dim in value.type.tensor_type.shape.dim]
            array = rng.standard_normal(shape).astype(np.float32)
            model.graph.initializer.append(onnx.numpy_helper.from_array(array, value.name))
    del model.graph.value_info[:]
    return model


@pytest.fixture
def make_model(tmp_path: Path) -> Callable[[str], Model]:
    """Loads the model of an ONNX text."""

    def make(text: str) -> Model:
        path = tmp_path / "model.onnx"
        onnx.save_model(weights_of(text), path)
        return load_model(path)

    return make


@pytest.fixture
def conv_model(make_model: Callable[[str], Model]) -> Model:
    """Images [N,3,H,W] -> scores [N,5]; values c r s m g f between."""
    return make_model(CONV_TEXT.format(n="N", h="H", w="W"))


@pytest.fixture
def conv_batch4(make_model: Callable[[str], Model]) -> Model:
    """The same, insisting on batch 4 and 8x8 images."""
    return make_model(CONV_TEXT.format(n=4, h=8, w=8))
