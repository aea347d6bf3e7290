# SPDX-License-Identifier: Apache-2.0
"""Attention that puts the sequence before the batch is put back in order, and computes the same."""

import numpy as np
import onnx_ir as ir
import pytest

from quantrt.ir.clone import clone
from quantrt.model.load import load_model
from quantrt.model.passes.for_gpu.batch_first import batch_first
from tests.exported_attention import inputs, path_of
from tests.unit.model.check_pass import check_pass, named_model_of, op_types, run

FLOAT32 = 1e-6


def made(body, rng, *, inputs, weights, outputs="float[...] y"):
    """The model with names and inferred shapes, as it is when it was loaded."""
    arrays = {
        name: rng.standard_normal(x).astype(np.float32) if isinstance(x, tuple) else x
        for name, x in weights.items()
    }
    return named_model_of(body, inputs=inputs, outputs=outputs, weights=arrays)


def checked(model, rng, changes):
    return check_pass(batch_first, model, rng, changes=changes, rtol=0, atol=FLOAT32)


@pytest.mark.parametrize("batch", [1, 3])
@pytest.mark.parametrize("exporter", ["torchscript", "dynamo"])
def test_torchs_own_encoder(exporter, batch):
    """Each layer: three parts of the projection, its Transpose, three times heads apart, once joined."""
    model = load_model(path_of(exporter, "encoder"))
    graph = clone(model.graph)
    assert batch_first(graph) == 2 * 8
    floats = [node for node in graph.graph if node.outputs[0].dtype == ir.DataType.FLOAT]
    assert not {"Gather", "Gemm"} & {node.op_type for node in floats}
    feeds = {"x": np.concatenate([inputs()["x"]] * batch)[:batch]}
    (want,), (got,) = run(model.graph, feeds), run(graph, feeds)
    np.testing.assert_allclose(got, want, rtol=0, atol=FLOAT32)


@pytest.mark.parametrize("place", [0, 2, -1])
@pytest.mark.parametrize("axis", [0, 1, -1])
def test_one_place_of_an_axis_is_a_view(place, axis, rng):
    model = made(
        f"y = Gather<axis={axis}>(x, place)", rng, inputs="float[3,4,5] x", weights={"place": np.array(place)}
    )
    assert op_types(checked(model, rng, changes=1)) == ["Slice", "Squeeze"]


@pytest.mark.parametrize("place", [np.array([1]), np.array([2, 0])], ids=str)
def test_several_places_stay_a_gather(place, rng):
    model = made("y = Gather(x, place)", rng, inputs="float[3,4,5] x", weights={"place": place})
    checked(model, rng, changes=0)


def test_rows_of_a_table_stay_a_gather(rng):
    model = made(
        "r = Gather(w, place) y = Add(r, x)",
        rng,
        inputs="float[4] x",
        weights={"w": (3, 4), "place": np.array(1)},
    )
    checked(model, rng, changes=0)


def test_a_transpose_goes_behind_a_product(rng):
    body = "t = Transpose<perm=[1,0,2]>(x) p = MatMul(t, w) y = Add(b, p)"
    model = made(body, rng, inputs="float[2,3,4] x", weights={"w": (4, 5), "b": (5,)})
    assert op_types(checked(model, rng, changes=1)) == ["MatMul", "Add", "Transpose"]


STAY = {
    "another order": ("t = Transpose<perm=[0,2,1]>(x) y = MatMul(t, w)", "float[2,4,3] x", {"w": (4, 5)}),
    "read twice": (
        "t = Transpose<perm=[1,0,2]>(x) p = MatMul(t, w) q = Neg(t) y = Concat<axis=2>(p, q)",
        "float[2,3,4] x",
        {"w": (4, 5)},
    ),
    "heads of other sizes": (
        "a = Reshape(x, flat) t = Transpose<perm=[1,0,2]>(a) y = Reshape(t, apart)",
        "float[6,2,16] x",
        {"flat": np.array([12, 4, 4]), "apart": np.array([2, 4, 6, 4])},
    ),
    "heads before the batch": (
        "a = Reshape(x, flat) t = Transpose<perm=[1,0,2]>(a) y = Reshape(t, apart)",
        "float[6,2,16] x",
        {"flat": np.array([6, 8, 4]), "apart": np.array([4, 2, 4, 6])},
    ),
}


@pytest.mark.parametrize("case", STAY)
def test_what_is_something_else_stays(case, rng):
    body, given, weights = STAY[case]
    checked(made(body, rng, inputs=given, weights=weights), rng, changes=0)
