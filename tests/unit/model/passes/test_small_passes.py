# SPDX-License-Identifier: Apache-2.0
"""Constants lifted, identities and unused nodes removed, functions inlined, overridable weights fixed."""

import numpy as np
import onnx
import onnx_ir as ir
import pytest

from quantrt.errors import ModelError
from quantrt.ir.sources import sources_of
from quantrt.model.passes.remove_identities import remove_identities
from quantrt.model.passes.remove_unused import remove_unused
from quantrt.model.passes.spell.drop_initializer_inputs import drop_initializer_inputs
from quantrt.model.passes.spell.inline_functions import inline_functions
from quantrt.model.passes.spell.lift_constants import lift_constants
from tests.unit.model.check_pass import check_pass, model_of, op_types, proto_of, run

CONSTANTS = {
    "value": "value = float[2] {1, 2}",
    "value_float": "value_float = 2.5",
    "value_floats": "value_floats = [1.0, 2.0]",
    "value_int": "value_int = 3",
    "value_ints": "value_ints = [3, 4]",
}


@pytest.mark.parametrize("case", CONSTANTS)
def test_constants_become_initializers(case, rng):
    model = model_of(
        f"c = Constant<{CONSTANTS[case]}>() f = Cast<to=1>(c) y = Add(x, f)", inputs="float[3,2] x"
    )
    lifted = check_pass(lift_constants, model, rng, changes=1, rtol=0, atol=0)
    assert op_types(lifted) == ["Cast", "Add"]
    assert "c" in lifted.graph.initializers


def test_a_constant_output_stays_a_node(rng):
    model = model_of(
        "y = Constant<value = float[2] {1, 2}>() z = Relu(x)", outputs="float[2] y, float[...] z"
    )
    check_pass(lift_constants, model, rng, changes=0, rtol=0, atol=0)


def test_constants_inside_branches_stay(rng):
    model = model_of(
        "y = If (c) <then_branch = yes () => (float[...] a) { k = Constant<value_float=2.0>()"
        " a = Mul(k, x) },"
        " else_branch = no () => (float[...] b) { b = Neg(x) }>",
        weights={"c": np.array(True)},
    )
    check_pass(lift_constants, model, rng, changes=0, rtol=0, atol=0)


IDENTITIES = {
    "Identity": "[a] r = Relu(x) [b] i = Identity(r) y = Neg(i)",
    "Identity before an output": "[a] r = Relu(x) [b] y = Identity(r)",
    "Dropout": "[a] r = Relu(x) [b] i = Dropout(r) y = Neg(i)",
    "Dropout with ratio": "[a] r = Relu(x) [b] i, mask = Dropout(r, ratio) y = Neg(i)",
    "Dropout, not training": "[a] r = Relu(x) [b] i = Dropout(r, ratio, no) y = Neg(i)",
    "Concat of one": "[a] r = Relu(x) [b] i = Concat<axis=1>(r) y = Neg(i)",
    "Sum of one": "[a] r = Relu(x) [b] i = Sum(r) y = Neg(i)",
}


@pytest.mark.parametrize("case", IDENTITIES)
def test_identities_go(case, rng):
    model = model_of(IDENTITIES[case], weights={"ratio": np.float32(0.5), "no": np.array(False)})
    removed = check_pass(remove_identities, model, rng, changes=1, rtol=0, atol=0)
    assert sources_of(removed.graph[0]) == ("a", "b")


def test_a_cast_to_the_same_type_goes(rng):
    model = model_of("c = Cast<to=1>(x) y = Neg(c)")
    assert op_types(check_pass(remove_identities, model, rng, changes=1, rtol=0, atol=0)) == ["Neg"]


def test_a_pad_by_nothing_goes_and_others_stay(rng):
    pads = {"none": np.zeros(4, np.int64), "one": np.array([0, 1, 0, -1], np.int64)}
    model = model_of("p = Pad(x, none) q = Pad(p, one) y = Neg(q)", inputs="float[3,2] x", weights=pads)
    assert op_types(check_pass(remove_identities, model, rng, changes=1, rtol=0, atol=0)) == ["Pad", "Neg"]


IDENTITIES_THAT_STAY = {
    "input to output": ("y = Identity(x)", "float[...] y"),
    "one value, two outputs": ("r = Relu(x) y = Identity(r) z = Identity(r)", "float[...] y, float[...] z"),
    "an output twice": ("r = Relu(x) y = Identity(r)", "float[...] y, float[...] r"),
    "a constant output": ("z = Neg(x) y = Identity(w)", "float[...] y, float[...] z"),
    "a mask in use": ("d, m = Dropout(x) y = Cast<to=1>(m)", "float[...] y"),
    "another type": ("i = Cast<to=7>(x) y = Cast<to=1>(i)", "float[...] y"),
}


@pytest.mark.parametrize("case", IDENTITIES_THAT_STAY)
def test_identities_that_must_stay(case, rng):
    body, outputs = IDENTITIES_THAT_STAY[case]
    model = model_of(body, outputs=outputs, weights={"w": np.ones(3, np.float32)})
    check_pass(remove_identities, model, rng, changes=0, rtol=0, atol=0)


def test_dropout_in_training_stays():
    model = model_of("y = Dropout(x, ratio, yes)", weights={"ratio": np.float32(0.5), "yes": np.array(True)})
    assert remove_identities(model) == 0


def test_a_value_captured_by_a_branch_survives_its_identity(rng):
    model = model_of(
        "i = Identity(x) y = If (c) <then_branch = yes () => (float[...] a) { a = Relu(i) },"
        " else_branch = no () => (float[...] b) { b = Neg(i) }>",
        weights={"c": np.array(True)},
    )
    assert op_types(check_pass(remove_identities, model, rng, changes=1, rtol=0, atol=0)) == ["If"]


def test_unused_nodes_and_initializers_go(rng):
    model = model_of("dead = Mul(x, w) deader = Relu(dead) y = Neg(x)", weights={"w": np.ones(6, np.float32)})
    cleaned = check_pass(remove_unused, model, rng, changes=3, rtol=0, atol=0)
    assert op_types(cleaned) == ["Neg"]
    assert not cleaned.graph.initializers


def test_weights_are_no_inputs(rng):
    proto = proto_of("y = Mul(x, w)", weights={"w": np.full(6, 2, np.float32)})
    proto.graph.input.append(onnx.helper.make_tensor_value_info("w", 1, [6]))
    proto.ir_version = 3
    fixed = check_pass(drop_initializer_inputs, ir.from_proto(proto), rng, changes=1, rtol=0, atol=0)
    assert [value.name for value in fixed.graph.inputs] == ["x"]
    assert fixed.ir_version == 4


FUNCTION = """
<ir_version: 8, opset_import: ["": 17, "mine": 1]>
graph (float[2,3] x) => (float[2,3] y) { [call] y = mine.Twice(x) }
<opset_import: ["": 17], domain: "mine">
Twice (a) => (b) { [add] b = Add(a, a) }
"""


def test_local_functions_are_inlined(rng):
    model = ir.from_proto(onnx.parser.parse_model(FUNCTION))
    x = rng.standard_normal((2, 3)).astype(np.float32)
    want = run(model, {"x": x})
    assert inline_functions(model) == 1
    assert op_types(model) == ["Add"]
    assert not model.functions
    np.testing.assert_array_equal(run(model, {"x": x}), want)


def test_functions_that_call_each_other_are_an_error():
    text = FUNCTION.replace("[add] b = Add(a, a)", "[again] b = mine.Twice(a)")
    text = text.replace('<opset_import: ["": 17], domain', '<opset_import: ["": 17, "mine": 1], domain')
    with pytest.raises(ModelError, match="cannot inline"):
        inline_functions(ir.from_proto(onnx.parser.parse_model(text)))
