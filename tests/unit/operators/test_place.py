# SPDX-License-Identifier: Apache-2.0
"""Numbers stay on the host, tensors go to the device: here "meta", whose values cannot be read."""

import numpy as np
import onnx
import onnx.parser
import onnx_ir as ir
import pytest
import torch

from quantrt.errors import ModelError
from quantrt.operators.extract import extract_nodes, index_nodes
from quantrt.operators.interpret import TorchGraph
from quantrt.operators.numbers import NUMBERS
from quantrt.operators.place import Placement
from quantrt.operators.table import OPERATORS

META = torch.device("meta")


def parse(text: str, **constants: np.ndarray) -> ir.Model:
    model = onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["" : 21]> {text}')
    for name, array in constants.items():
        model.graph.initializer.append(onnx.numpy_helper.from_array(array, name))
    return ir.from_proto(model)


def test_parameters_are_of_operators_that_exist():
    assert set(NUMBERS) <= {row.op_type for row in OPERATORS}


def test_a_node_runs_where_its_tensors_are():
    placement = Placement(META)
    there, here, number = torch.empty(3, device=META), torch.zeros(3), torch.tensor([3])
    assert [x.device.type for x in placement.place("Add", [there, here])] == ["meta", "meta"]
    assert [x.device.type for x in placement.place("Add", [here, here])] == ["cpu", "cpu"]
    assert [x.device.type for x in placement.place("Reshape", [there, number])] == ["meta", "cpu"]
    assert [x.device.type for x in placement.place("Gather", [here, number])] == ["cpu", "cpu"]
    assert [x.device.type for x in placement.place("Shape", [there])] == ["cpu"]
    assert placement.place("Clip", [there, None, here[0]])[1] is None
    assert placement.place("Loop", [number, None, there]) == [number, None, there]


def test_constants_are_copied_once():
    placement = Placement(META)
    there, constant, other = torch.empty(3, device=META), torch.zeros(3), torch.zeros(3)
    placement.add_constant(constant)
    first, second = (placement.place("Add", [there, constant])[1] for _ in range(2))
    assert first is second
    assert placement.place("Add", [there, other])[1] is not placement.place("Add", [there, other])[1]


def test_shapes_are_followed_through_a_graph_without_reading_anything():
    text = """g (float[N, M] x) => (float[A, B] y, int64 count) {
        s = Shape (x)
        n = Gather <axis = 0> (s, zero)
        m = Gather <axis = 0> (s, one)
        nm = Mul (n, m)
        u = Unsqueeze (nm, axes)
        target = Concat <axis = 0> (u, minus)
        z = ConstantOfShape <value = float[1] {2.0}> (target)
        flat = Reshape (x, target_of_x)
        r = Range (zero, nm, one)
        t = Cast <to = 1> (r)
        row = Unsqueeze (t, axes)
        y = Add (flat, row)
        count = Size (z)
    }"""
    whole = {"axes": [0], "minus": [1], "target_of_x": [1, -1]}
    constants = {name: np.array(value, np.int64) for name, value in whole.items()}
    graph = parse(text, zero=np.array(0), one=np.array(1), **constants)
    found = TorchGraph(graph, "meta", numbers_on_host=True).run({"x": torch.empty(3, 4, device=META)})
    assert (found["y"].device.type, tuple(found["y"].shape)) == ("meta", (1, 12))
    assert (found["count"].device.type, int(found["count"])) == ("cpu", 12)
    x = torch.arange(12.0).reshape(3, 4)
    placed, plain = (TorchGraph(graph, numbers_on_host=flag).run({"x": x}) for flag in (True, False))
    assert torch.equal(placed["y"], plain["y"])
    assert placed["y"].tolist() == [[2.0 * n for n in range(12)]]


def test_gradient_mode_is_the_callers_in_run_in():
    graph = TorchGraph(parse("g (float[N] x) => (float[N] y) { y = Neg (x) }"))
    with torch.no_grad():
        assert not graph.run_in({"x": torch.ones(2)})["y"].is_inference()
    assert graph.run({"x": torch.ones(2)})["y"].is_inference()


# ---- a few nodes of a model

WHOLE = """g (float[N] x, bool c) => (float[N] w) {
    [a] y = Add (x, one)
    [b] z = If (c) <then_branch = t () => (float[N] p) { p = Mul (y, two) },
                    else_branch = e () => (float[N] q) { q = Identity (x) }>
    [d] w = Sub (z, one)
}"""


def whole() -> ir.Model:
    return parse(WHOLE, one=np.array([1], np.float32), two=np.array([2], np.float32))


@pytest.mark.parametrize("prepared", [lambda graph: graph, index_nodes], ids=["searched", "indexed"])
def test_nodes_come_with_the_constants_they_read(prepared):
    model = prepared(whole())
    part = extract_nodes(model, ["b"], ["y", "c", "x"], ["z"])
    assert sorted(part.graph.initializers) == ["two"]
    found = TorchGraph(part).run(
        {"y": np.ones(2, np.float32), "c": np.array(True), "x": np.zeros(2, np.float32)}
    )
    assert found["z"].tolist() == [2.0, 2.0]
    part = extract_nodes(model, ["d", "a"], ["x", "z"], ["w", "y"])
    assert [node.name for node in part.graph] == ["a", "d"]
    assert sorted(part.graph.initializers) == ["one"]


def test_a_constant_may_be_an_input():
    part = extract_nodes(whole(), ["a"], ["x", "one"], ["y"])
    assert [value.name for value in part.graph.inputs] == ["x", "one"]
    assert not part.graph.initializers


@pytest.mark.parametrize("prepared", [lambda graph: graph, index_nodes], ids=["searched", "indexed"])
def test_values_and_nodes_that_are_lacking_are_named(prepared):
    model = prepared(whole())
    with pytest.raises(ModelError, match="not theirs") as error:
        extract_nodes(model, ["b"], ["c", "x"], ["z"])
    assert error.value.got == "y"
    with pytest.raises(ModelError, match="lacks nodes") as error:
        extract_nodes(model, ["a", "zz"], ["x"], ["y"])
    assert error.value.got == "zz"
