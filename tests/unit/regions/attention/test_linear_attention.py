# SPDX-License-Identifier: Apache-2.0
"""ReLU linear attention is found as exporters spell it, and nothing that only looks like it."""

from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import pytest

from quantrt.model.for_gpu import for_gpu
from quantrt.model.load import load_model
from quantrt.model.model import Model
from quantrt.regions.formula_json import from_json, to_json
from quantrt.regions.partition import partition
from quantrt.regions.region import LinearAttention, Regions
from tests.linear_attention import CONSTANTS, linear_nodes
from tests.nets import net, run_ort, samples

TEXT = "linear (float[N,2,24,S] x) => (float[N,2,S,8] y) {" + linear_nodes("x", "y") + "}"


def linear(text: str = TEXT, **changed: np.ndarray) -> Model:
    return for_gpu(net(text, {**CONSTANTS, **changed}, opset=18))


def found(model: Model) -> list[LinearAttention]:
    return [x.formula for x in _regions(model).regions if isinstance(x.formula, LinearAttention)]


def _regions(model: Model) -> Regions:
    return partition(model.graph)


def test_it_is_one_region_of_q_k_and_v():
    (region,) = (x for x in _regions(linear()).regions if isinstance(x.formula, LinearAttention))
    assert len(region.nodes) == 10
    assert region.inputs == ("q0", "k0", "v") and region.outputs == ("y",)
    assert region.formula.epsilon == pytest.approx(1e-5)
    assert from_json(to_json(region.formula)) == region.formula


@pytest.mark.parametrize(
    "changed",
    [
        {"pads": np.array([0, 0, 0, 1, 0, 0, 0, 0], np.int64)},
        {"one": np.array(2.0, np.float32)},
        {"axis": np.array([2], np.int64)},
        {"last": np.array([-2], np.int64)},
        {"epsilon": np.full((1, 1, 1, 1, 2), 1e-5, np.float32)},
    ],
    ids=lambda changed: next(iter(changed)),
)
def test_other_constants_make_something_else(changed: Mapping[str, np.ndarray]):
    assert not found(linear(**changed))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("k = Relu(k0)", "k = Sigmoid(k0)"),
        ("perm=[0,1,3,2]>(k)", "perm=[0,3,1,2]>(k)"),
        ("Div(top, bottom)", "Div(bottom, top)"),
        ("Add(bottom0, epsilon)", "Add(bottom0, bottom0)"),
        ('mode="constant"', 'mode="edge"'),
    ],
)
def test_other_operations_make_something_else(old: str, new: str):
    assert old in TEXT
    assert not found(linear(TEXT.replace(old, new)))


def test_parts_that_others_read_are_told():
    text = TEXT.replace("(float[N,2,S,8] y)", "(float[N,2,S,8] y, float[N,2,8,9] kv)")
    model = linear(text)
    assert not found(model)
    assert any(x.reason == "parts of it are read elsewhere" for x in _regions(model).mismatches)


def test_a_real_network_has_one_in_every_block(shared_data: Callable[[str], Path]):
    model = load_model(shared_data("models/cifar10_efficientvit_b0.onnx"))
    assert len(found(for_gpu(model))) == 4


def test_the_reference_is_what_the_graph_computes():
    pytest.importorskip("torch", reason="programs run in torch")
    from tests.unit.tactics.cuda.test_lower import program_of, run

    model, inputs = linear(), {"x": 30 * samples(3, 2, 24, 40)}
    (want,) = run_ort(model.graph, inputs)
    for precision, bound in (("fp32", 1e-5), ("fp16", 5e-3)):
        program = program_of(model, inputs, precision)
        assert not any("stored in FP32" in note for note in program.notes["tuning"])
        got = run(model, program, inputs)
        np.testing.assert_allclose(got, want, rtol=bound, atol=bound * np.abs(want).max())
