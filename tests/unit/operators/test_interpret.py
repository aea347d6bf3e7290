# SPDX-License-Identifier: Apache-2.0
"""Whole graphs: capture, functions, freed values, and every error names its node."""

import numpy as np
import onnx
import onnx_ir as ir
import pytest

pytest.importorskip("torch", reason="the torch operators need torch")

import torch

from quantrt.errors import DataError, DeviceError, ModelError
from quantrt.operators import block
from quantrt.operators.interpret import TorchGraph
from quantrt.operators.table import LAST_OPSET, OPERATORS, find_operator


def model(text: str, opset: int = 18) -> ir.Model:
    return ir.from_proto(onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["": {opset}]> g {text}'))


def test_a_graph_runs_on_arrays_and_tensors():
    graph = TorchGraph(model("(float[2] x, float[2] w) => (float[2] y) { a = Add (x, w) y = Relu (a) }"))
    got = graph.run({"x": np.array([1, -5], np.float32), "w": torch.tensor([1.0, 2.0])})
    assert graph.inputs == ("x", "w")
    assert got["y"].tolist() == [2.0, 0.0]


def test_initializers_may_be_overridden_but_need_not_be_given():
    graph = TorchGraph(model("(float[1] x, float[1] w = {3}) => (float[1] y) { y = Mul (x, w) }"))
    x = np.array([2], np.float32)
    assert graph.run({"x": x})["y"].item() == 6
    assert graph.run({"x": x, "w": np.array([5], np.float32)})["y"].item() == 10
    assert graph.run({"x": x})["y"].item() == 6


LOOP = """(int64 n, float[2] x, float[2] unused) => (float[2] last, float rows) {
  going = Constant <value = bool {1}> ()
  step = Identity (unused)
  last, rows = Loop (n, going, x) <body = inner (int64 i, bool c, float[2] s) =>
    (bool c2, float[2] s2, float[2] row) { c2 = Identity (c) s2 = Add (s, step) row = Mul (s2, step) }>
}"""


def test_a_loop_sees_the_values_around_it():
    ones = np.ones(2, np.float32)
    got = TorchGraph(model(LOOP)).run({"n": np.int64(3), "x": ones, "unused": 2 * ones})
    assert got["last"].tolist() == [7, 7]
    assert got["rows"].tolist() == [[6, 6], [10, 10], [14, 14]]


def test_a_loop_that_does_not_run_gives_empty_rows():
    ones = np.ones(2, np.float32)
    got = TorchGraph(model(LOOP)).run({"n": np.int64(0), "x": ones, "unused": ones})
    assert got["last"].tolist() == [1, 1]
    assert got["rows"].shape == (0, 2)


def test_values_are_freed_after_their_last_reader(monkeypatch: pytest.MonkeyPatch):
    alive = []
    original = block._run_step

    def spy(step, scope, device):
        alive.append(sorted(value.name for value in scope))
        return original(step, scope, device)

    monkeypatch.setattr(block, "_run_step", spy)
    text = (
        "(float[1] x) => (float[1] y) { a = Abs (x) b = Neg (a) c = Exp (b) unused = Sqrt (c) y = Log (c) }"
    )
    TorchGraph(model(text)).run({"x": np.ones(1, np.float32)})
    assert alive == [["x"], ["a"], ["b"], ["c"], ["c"]]


def test_functions_of_the_model_are_expanded_and_the_model_is_left_alone():
    text = """<ir_version: 8, opset_import: ["": 18, "own": 1]>
      g (float[1] x) => (float[1] y) { y = own.twice (x) }
      <domain: "own", opset_import: ["": 18]> twice (a) => (b) { b = Add (a, a) }"""
    graph = ir.from_proto(onnx.parser.parse_model(text))
    assert TorchGraph(graph).run({"x": np.ones(1, np.float32)})["y"].item() == 2
    assert [node.op_type for node in graph.graph] == ["twice"]


def test_functions_of_onnx_are_expanded():
    text = "(float[4,6] x, int64[2] s) => (float y) { y = CenterCropPad (x, s) }"
    x = np.arange(24, dtype=np.float32).reshape(4, 6)
    got = TorchGraph(model(text)).run({"x": x, "s": np.array([2, 4])})
    np.testing.assert_array_equal(got["y"].numpy(), x[1:3, 1:5])


@pytest.mark.parametrize(
    ("text", "opset", "words"),
    [
        ("(float x) => (float y) { y = Multinomial (x) }", 18, ["Multinomial", "opset 18"]),
        (
            "(float x) => (float y) { y = Gelu (x) }",
            18,
            ["Gelu in opset 20 to 28", "to opset 20"],
        ),
        ("(float x) => (float y) { y = Relu <alpha = 1.0> (x) }", 18, ["'alpha'", "Relu"]),
        ("(float x) => (float y) { y = LeakyRelu <alfa = 1.0> (x) }", 18, ["'alfa'", "try 'alpha'"]),
        ("(float x) => (float y) { y = Concat (x) }", 18, ["Concat", "axis"]),
        ('() => (string y) { y = Constant <value_string = "a"> () }', 18, ["value_string"]),
        ("(float x) => (float y) { y = own.thing (x) }", 18, ["domain 'own'", "--device cpu"]),
        (
            "(float x) => (float y) { y = com.microsoft.FastGelu (x) }",
            18,
            ["domain 'com.microsoft'", "before ONNX Runtime optimized it"],
        ),
        ("(float x) => (float y) { y = Relu (x) }", LAST_OPSET + 1, [f"opset {LAST_OPSET + 1}"]),
    ],
)
def test_what_cannot_be_built_is_named(text: str, opset: int, words: list[str]):
    with pytest.raises(ModelError) as caught:
        TorchGraph(model(text, opset))
    assert all(word in str(caught.value) for word in words), str(caught.value)


@pytest.mark.parametrize(
    ("inputs", "words"),
    [
        ({}, ["expected x"]),
        ({"x": np.ones(2, np.float32), "z": np.ones(1)}, ["got x, z"]),
        ({"x": np.ones(2)}, ["double", "float"]),
        ({"x": np.ones((1, 2), np.float32)}, ["[1, 2]", "[2]"]),
        ({"x": np.ones(3, np.float32)}, ["[3]", "[2]"]),
    ],
)
def test_wrong_inputs_are_named(inputs: dict, words: list[str]):
    graph = TorchGraph(model("(float[2] x) => (float[2] y) { y = Relu (x) }"))
    with pytest.raises(DataError) as caught:
        graph.run(inputs)
    assert all(word in str(caught.value) for word in words), str(caught.value)


def test_what_cannot_be_computed_names_the_node_and_its_inputs():
    graph = TorchGraph(model("(float[a,b] x, float[c,d] y) => (float z) { [product] z = MatMul (x, y) }"))
    with pytest.raises(ModelError) as caught:
        graph.run({"x": np.ones((2, 3), np.float32), "y": np.ones((4, 5), np.float32)})
    assert "'product' (MatMul)" in str(caught.value)
    assert "float [2, 3], float [4, 5]" in str(caught.value)


def test_more_outputs_than_there_are_is_an_error():
    text = """(float[2,3] x, float[3] s, float[3] v) => (float y, float m) {
      y, m = BatchNormalization (x, s, s, s, v) }"""
    ones = np.ones(3, np.float32)
    with pytest.raises(ModelError, match="more outputs"):
        TorchGraph(model(text)).run({"x": np.ones((2, 3), np.float32), "s": ones, "v": ones})


def test_an_unknown_device_is_an_error():
    with pytest.raises(DeviceError, match="no device 'nonsense'"):
        TorchGraph(model("(float x) => (float y) { y = Relu (x) }"), "nonsense")


def test_rows_of_one_operator_do_not_overlap():
    for op_type in {row.op_type for row in OPERATORS}:
        rows = sorted((row for row in OPERATORS if row.op_type == op_type), key=lambda row: row.since)
        for older, newer in zip(rows, rows[1:], strict=False):
            assert older.until is not None, op_type
            assert older.until < newer.since, op_type


def test_rows_change_where_onnx_does():
    """A row may span versions of an operator, but starts at one, unless ONNX no longer knows the operator."""
    schemas = {(schema.name, schema.since_version) for schema in onnx.defs.get_all_schemas_with_history()}
    removed = {"ScaledTanh", "ParametricSoftplus", "ImageScaler"}
    for row in OPERATORS:
        assert (row.op_type, row.since) in schemas or row.op_type in removed, row
        assert find_operator(row.op_type, row.since, node="n") is row
