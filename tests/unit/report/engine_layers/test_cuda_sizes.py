# SPDX-License-Identifier: Apache-2.0
"""Sizes of regions at other batches than those they were timed at."""

from quantrt.report.engine_layers.cuda_sizes import layers_at, timed_shapes
from quantrt.report.engine_layers.layer import ROW_MAJOR, EngineLayer, Rival, TensorForm


def form(name: str, *dims: int) -> TensorForm:
    return TensorForm(name=name, dims=dims, dtype="float16", layout=ROW_MAJOR)


CONV = EngineLayer(
    name="conv",
    kind="Conv",
    rivals=(Rival(name="cudnn: graph", median_us=3.0, reason="slower"),),
    median_us=2.0,
    bytes_moved=2 * (2 * 12 + 2 * 32) + 100,
    operations=1000,
    inputs=(form("x", 2, 3, 4),),
    outputs=(form("h", 2, 8, 4),),
    weights={"float16": 100},
    attributes={"kernel": [3], "beside_us": {"fp32": 9.0}},
)
FLAT = EngineLayer(
    name="flat", kind="Gemm", inputs=(form("h2", 16, 4),), outputs=(form("y", 16, 2),), operations=256
)
TABLE = EngineLayer(
    name="table", kind="Rows", inputs=(form("t", 7, 4),), outputs=(form("u", 7, 4),), operations=5
)


def test_the_shapes_are_those_of_inputs_that_regions_read():
    assert timed_shapes([CONV, FLAT], ["x", "mask"]) == {"x": (2, 3, 4)}


def test_the_same_shapes_change_nothing():
    assert layers_at([CONV, FLAT], {"x": (2, 3, 4)}) == (CONV, FLAT)
    assert layers_at([FLAT], {"x": (9, 3, 4)}) == (FLAT,), "nothing tells at which shapes it was timed"


def test_another_batch_scales_what_has_it_and_leaves_out_times():
    conv, flat, table = layers_at([CONV, FLAT, TABLE], {"x": (6, 3, 4)})
    assert conv.inputs[0].dims == (6, 3, 4) and conv.outputs[0].dims == (6, 8, 4)
    assert conv.operations == 3000 and conv.bytes_moved == 2 * (6 * 12 + 6 * 32) + 100
    assert conv.median_us is None and conv.rivals[0].median_us is None and conv.rivals[0].reason == "slower"
    assert conv.attributes == {"kernel": [3]}
    assert flat.inputs[0].dims == (48, 4) and flat.operations == 768, "its batch is in its rows"
    assert table.operations is None and table.inputs[0].dims is None, "it has no batch: not known"


def test_other_sizes_than_the_batch_leave_sizes_unknown():
    (conv,) = layers_at([CONV], {"x": (2, 3, 8)})
    assert conv.operations is None and conv.bytes_moved is None and conv.inputs[0].dims is None
    assert conv.weights == CONV.weights and conv.median_us is None
