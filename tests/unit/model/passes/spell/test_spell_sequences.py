# SPDX-License-Identifier: Apache-2.0
"""Sequences of parts, read at constant places."""

import numpy as np
import pytest

from quantrt.ir.sources import sources_of
from quantrt.model.passes.fold.fold_constants import fold_constants
from quantrt.model.passes.spell.spell_sequences import spell_sequences
from tests.unit.model.check_pass import check_pass, model_of, op_types

PLACES = {"zero": np.array(0), "one": np.array(1), "last": np.array(-1)}


@pytest.mark.parametrize(
    ("split", "sizes"), [(np.array(2), [2, 2, 1]), (np.array([1, 2, 2]), [1, 2, 2])], ids=["chunks", "sizes"]
)
def test_parts_are_those_of_a_split(split, sizes, rng):
    model = model_of(
        "s = SplitToSequence<axis=1>(x, split) a = SequenceAt(s, one) b = SequenceAt(s, last) "
        "c = Relu(a) y = Concat<axis=1>(c, b)",
        inputs="float[2,5,3] x",
        weights={"split": split.astype(np.int64), "one": PLACES["one"], "last": PLACES["last"]},
    )
    for node in model.graph:
        node.name = f"{node.op_type}_{node.outputs[0].name}"
    fold_constants(model)  # makes sizes known, as in the order of passes
    spelled = check_pass(spell_sequences, model, rng, changes=1, rtol=0, atol=0)
    assert op_types(spelled) == ["Split", "Relu", "Concat"]
    split_node = spelled.graph[0]
    assert split_node.inputs[1].const_value.numpy().tolist() == sizes
    assert [value.name for value in split_node.outputs[1:]] == ["a", "b"]
    assert sources_of(split_node) == ("SplitToSequence_s", "SequenceAt_a", "SequenceAt_b")


def test_a_part_may_be_the_callers(rng):
    model = model_of(
        "s = SplitToSequence<axis=0>(x, split) y = SequenceAt(s, zero)",
        inputs="float[4,3] x",
        weights={"split": np.array([1, 3]), "zero": PLACES["zero"]},
    )
    assert op_types(check_pass(spell_sequences, model, rng, changes=1, rtol=0, atol=0)) == ["Split"]


@pytest.mark.parametrize(
    ("body", "inputs"),
    [
        pytest.param(
            "s = SplitToSequence<axis=0>(x, n) y = SequenceAt(s, zero)", "float[4] x, int64 n", id="n"
        ),
        pytest.param(
            "s = SplitToSequence<axis=0>(x, two) y = SequenceAt(s, i)", "float[4] x, int64 i", id="i"
        ),
        pytest.param(
            "s = SplitToSequence<axis=0>(x, two) y = SequenceAt(s, zero)", "float[N] x", id="length"
        ),
        pytest.param(
            "s = SplitToSequence<axis=0,keepdims=0>(x) y = SequenceAt(s, zero)", "float[4,3] x", id="keepdims"
        ),
        pytest.param(
            "s = SplitToSequence<axis=0>(x, two) y = ConcatFromSequence<axis=0>(s)", "float[4] x", id="whole"
        ),
    ],
)
def test_others_stay(body, inputs):
    constants = {"two": np.array(2), "zero": PLACES["zero"]}
    weights = {name: array for name, array in constants.items() if f" {name})" in body}
    model = model_of(body, inputs=inputs, weights=weights)
    assert spell_sequences(model) == 0
