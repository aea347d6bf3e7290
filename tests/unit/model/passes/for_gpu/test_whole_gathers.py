# SPDX-License-Identifier: Apache-2.0
"""A GatherND of every place is a view, and one of some places, or of turned ones, stays."""

import numpy as np
import onnx
import onnx_ir as ir
import pytest

from quantrt.model.passes.for_gpu.whole_gathers import whole_gathers
from tests.unit.model.check_pass import model_of, op_types, run

B, S = 3, 5
ROWS = (
    "zero = Constant<value_int = 0>() one = Constant<value_int = 1>() batch = Shape<start = 0, end = 1>(x)"
    " none = Constant<value_ints = [0]>() count = Squeeze(batch, none)"
    " range = Range({start}, count, {step}) axes = Constant<value_ints = [1, 2, 3]>()"
    " rows = Unsqueeze(range, axes) last = Constant<value_ints = [-1]>()"
    " rest = Constant<value_ints = [1, 1, {keys}]>() sizes = Concat<axis = 0>(batch, rest)"
    " wide_rows = Expand(rows, sizes) wide_columns = Expand(columns, sizes)"
    " i = Unsqueeze(wide_rows, last) j = Unsqueeze(wide_columns, last)"
    " index = Concat<axis = -1>({order}) y = GatherND(x, index)"
)


def made(columns, *, start="zero", step="one", order="i, j"):
    """x[b, k] for every b and every k of `columns`, as transformers' masks are exported."""
    body = ROWS.format(start=start, step=step, keys=columns.size, order=order)
    model = model_of(
        body,
        inputs=f"bool[batch,{S}] x",
        outputs=f"bool[batch,1,1,{columns.size}] y",
        weights={"columns": columns.reshape(1, 1, 1, -1).astype(np.int64)},
    )
    return ir.from_proto(onnx.shape_inference.infer_shapes(ir.to_proto(model), data_prop=True))


def settled(model):
    """Constant nodes as initializers: what is loaded has no others."""
    from quantrt.model.passes.spell.lift_constants import lift_constants

    lift_constants(model)
    for node in model.graph:
        if node.op_type in ("Range", "Unsqueeze", "Expand"):
            shape = node.outputs[0].shape
            node.outputs[0].shape = ir.Shape(["batch", *shape.dims[1:]])
    return model


def test_every_place_in_order_is_a_view(rng):
    model = settled(made(np.arange(S)))
    feeds = {"x": rng.random((B, S)) < 0.5}
    (want,) = run(model, feeds)
    assert whole_gathers(model) == 1
    assert op_types(model) == ["Unsqueeze"]
    (got,) = run(model, feeds)
    np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize(
    "columns",
    [np.arange(S)[::-1], np.arange(S - 1), np.array([0, 1, 1, 3, 4])],
    ids=["turned", "part", "twice"],
)
def test_other_places_are_gathered(columns):
    assert whole_gathers(settled(made(columns))) == 0


@pytest.mark.parametrize("given", [{"start": "one"}, {"order": "j, i"}])
def test_other_rows_are_gathered(given):
    assert whole_gathers(settled(made(np.arange(S), **given))) == 0
