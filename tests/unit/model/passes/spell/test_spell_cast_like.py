# SPDX-License-Identifier: Apache-2.0
"""CastLike becomes Cast, and what torch wrote with it is constant again."""

import logging
import warnings
from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import pytest

from quantrt.ir.edit import constant_of
from quantrt.model.load import load_model
from quantrt.model.passes.spell.spell_cast_like import spell_cast_like
from quantrt.quantize.placement.place_by_config import place_by_config
from quantrt.quantize.targets.onnxruntime import ORT
from quantrt.quantize_config import QuantizeConfig
from tests.unit.model.check_pass import check_pass, model_of, op_types, run


def test_the_type_of_the_second_input(rng: np.random.Generator):
    body = "whole = Cast <to: int = 7> (x)  c = CastLike(whole, x)  y = Add(c, x)"
    changed = check_pass(spell_cast_like, model_of(body), rng, changes=1, rtol=0.0, atol=0.0)
    assert op_types(changed) == ["Cast", "Cast", "Add"]
    assert changed.graph[1].attributes["to"].as_int() == ir.DataType.FLOAT


def test_a_type_that_is_inferred(rng: np.random.Generator):
    body = "half = Cast <to: int = 10> (x)  r = Relu(half)  c = CastLike(x, r)  y = Add(c, r)"
    model = model_of(body, outputs="float16[...] y")
    changed = check_pass(spell_cast_like, model, rng, changes=1, rtol=0.0, atol=0.0)
    assert changed.graph[2].attributes["to"].as_int() == ir.DataType.FLOAT16


def test_saturation_is_kept():
    body = "c = CastLike <saturate: int = 0> (x, like)  y = Cast <to: int = 1> (c)"
    model = model_of(body, inputs="float[4] x, float8e4m3fn[1] like", opset=19)
    feeds = {"x": np.array([1.0, 500.0, -1e4, 448.0], np.float32)}
    assert spell_cast_like(model) == 1
    del model.graph.inputs[1]
    np.testing.assert_array_equal(run(model, feeds)[0], [1.0, np.nan, np.nan, 448.0])


def test_in_a_branch(rng: np.random.Generator):
    body = """
        y = If (p) <
            then_branch = then () => (float[...] t) { t = CastLike(n, x) },
            else_branch = other () => (float[...] e) { e = Identity(x) }
        >
    """
    model = model_of(body, inputs="float[3] x, int32[3] n, bool p")
    feeds = {"x": np.zeros(3, np.float32), "n": np.array([3, -1, 7], np.int32), "p": np.array(True)}
    assert spell_cast_like(model) == 1
    np.testing.assert_array_equal(run(model, feeds)[0], [3.0, -1.0, 7.0])


@pytest.fixture
def unoptimized(tmp_path: Path) -> Path:
    """Two convolutions, the first without a bias, as torch writes them without its optimizer."""
    torch = pytest.importorskip("torch")
    pytest.importorskip("onnxscript")
    torch.manual_seed(0)
    net = torch.nn.Sequential(
        torch.nn.Conv2d(3, 8, 3, padding=1, bias=False), torch.nn.ReLU(), torch.nn.Conv2d(8, 4, 1)
    )
    path = tmp_path / "unoptimized.onnx"
    logging.getLogger("torch.onnx").setLevel(logging.ERROR)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        program = torch.onnx.export(
            net.eval(), (torch.rand(2, 3, 6, 6),), dynamo=True, optimize=False, verbose=False
        )
    onnx.save(program.model_proto, path)
    return path


def test_a_convolution_that_torch_gave_a_bias_of_zeros_is_quantized(unoptimized: Path):
    assert "CastLike" in op_types(ir.load(unoptimized))
    model = load_model(unoptimized)
    assert op_types(model.graph) == ["Conv", "Relu", "Conv"]
    bias = constant_of(model.graph.graph[0].inputs[2])
    np.testing.assert_array_equal(bias, np.zeros(8, np.float32))
    placement = place_by_config(model.graph, ORT, QuantizeConfig())
    codes = {row.node for row in placement.decisions if row.is_int8}
    assert {node.name for node in model.graph.graph if node.op_type == "Conv"} <= codes


def test_it_computes_what_torch_wrote(unoptimized: Path, rng: np.random.Generator):
    feeds = {"input": rng.standard_normal((2, 3, 6, 6)).astype(np.float32)}
    want = run(onnx.load(unoptimized), feeds)[0]
    np.testing.assert_allclose(run(load_model(unoptimized).graph, feeds)[0], want, rtol=1e-6, atol=1e-6)
