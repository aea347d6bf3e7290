# SPDX-License-Identifier: Apache-2.0
"""Cloning, source records, shapes, edits, mapped arrays and whole-file writes."""

import mmap
from pathlib import Path

import numpy as np
import onnx_ir as ir
import pytest

from quantrt.errors import DeviceError
from quantrt.ir.atomic import replace_file
from quantrt.ir.clone import clone
from quantrt.ir.edit import (
    absorb,
    add_constant,
    constant_of,
    only_consumer,
    set_constant_input,
    taken_names,
)
from quantrt.ir.mapped import map_file, release_pages, stream_bytes
from quantrt.ir.shapes import infer_shapes
from quantrt.ir.sources import add_sources, sources_of
from tests.unit.model.check_pass import model_of

IF = (
    "h = Relu(x) y = If (c) <then_branch = p () => (float[...] a) { a = Mul(h, w) },"
    " else_branch = q () => (float[...] b) { b = Neg(x) }>"
)
WEIGHTS = {"w": np.ones(6, np.float32), "c": np.array(True)}


def test_a_clone_is_equal_shares_tensors_and_nothing_else():
    model = model_of(IF, weights=WEIGHTS)
    add_sources(model.graph[0], ("old",))
    model.metadata_props["key"] = "value"
    copy = clone(model)
    assert ir.to_proto(copy) == ir.to_proto(model)
    assert copy.graph.initializers["w"].const_value is model.graph.initializers["w"].const_value
    mine = {id(part) for node in model.graph.all_nodes() for part in (node, *node.outputs)}
    assert not mine & {id(part) for node in copy.graph.all_nodes() for part in (node, *node.outputs)}
    copy.graph[0].name = "changed"
    assert model.graph[0].name != "changed"


def test_sources():
    model = model_of("[a] h = Relu(x) [b] y = Neg(h)")
    node = model.graph[0]
    assert sources_of(node) == ("a",)
    add_sources(node, ("b", "a", "two\nlines"))
    assert sources_of(node) == ("a", "b", "two lines")
    assert sources_of(clone(model).graph[0]) == ("a", "b", "two lines")
    assert sources_of(ir.from_proto(ir.to_proto(model)).graph[0]) == ("a", "b", "two lines")


def shape_of(model, name):
    values = {value.name: value for node in model.graph.all_nodes() for value in node.outputs}
    value = values[name]
    dims = None if value.shape is None else [d if isinstance(d, int) else d.value for d in value.shape.dims]
    return dims, value.dtype


def test_shapes_with_symbols_through_branches():
    model = model_of(IF, inputs="float[batch,4,6] x", weights=WEIGHTS)
    infer_shapes(model)
    assert shape_of(model, "h") == (["batch", 4, 6], ir.DataType.FLOAT)
    assert shape_of(model, "a") == (["batch", 4, 6], ir.DataType.FLOAT)


def test_shapes_keep_what_the_file_says_and_fill_the_rest():
    model = model_of("a = Relu(x) m = here.Mystery(a) y = Neg(m)", inputs="float[batch,4] x")
    model.opset_imports["here"] = 1
    model.graph[1].outputs[0].shape = ir.Shape(["batch", 7])
    model.graph[1].outputs[0].type = ir.TensorType(ir.DataType.FLOAT)
    infer_shapes(model)
    assert shape_of(model, "m") == (["batch", 7], ir.DataType.FLOAT)
    assert shape_of(model, "y") == (["batch", 7], ir.DataType.FLOAT)


def test_shape_values_come_from_weights_that_stay_inside():
    model = model_of(
        "s = Shape(x) r = Reshape(x, to) y = Relu(r)",
        inputs="float[2,4,6] x",
        weights={"to": np.array([4, -1])},
    )
    infer_shapes(model)
    assert shape_of(model, "r")[0] == [4, 12]


def test_absurd_sizes_are_not_followed():
    """ONNX makes an object per element of a vector whose values it follows: this one would take 100 GB."""
    model = model_of(
        "e = ConstantOfShape<value = int64[1] {1}>(size) t = Concat<axis=0>(e, one) y = Reshape(x, t)",
        weights={"size": np.array([1_200_000_000]), "one": np.array([1])},
    )
    infer_shapes(model)
    assert shape_of(model, "e")[0] == [1_200_000_000]


def test_shapes_of_a_graph_that_contradicts_itself_stay_unknown():
    model = model_of("y = MatMul(x, w)", inputs="float[2,3] x", weights={"w": np.ones((4, 5), np.float32)})
    infer_shapes(model)
    assert shape_of(model, "y")[0] is None


def test_edits():
    model = model_of(
        "a = Add(x, w) b = Mul(a, w) y = Neg(b)",
        inputs="float[2,6] x",
        weights={"w": np.zeros(6, np.float32)},
    )
    add, mul, neg = model.graph
    assert only_consumer(add.outputs[0]) is mul
    assert only_consumer(neg.outputs[0]) is None
    set_constant_input(model, add, 1, np.ones(6, np.float32), "new")
    assert add.inputs[1].name == "new"
    assert constant_of(mul.inputs[1]).sum() == 0
    set_constant_input(model, mul, 1, np.full(6, 2, np.float32), "other")
    assert mul.inputs[1].name == "w", "nobody else reads it: the name is kept"
    assert add_constant(model, "w", np.zeros(1)).name == "w_1"
    assert constant_of(add.inputs[0]) is None
    absorb(mul, neg)
    assert [value.name for value in model.graph.outputs] == ["y"]
    assert mul.outputs[0].name == "y"


def test_names_that_are_looked_for_once_are_as_free():
    model = model_of(IF, weights=WEIGHTS)
    taken = taken_names(model)
    assert taken >= {"a", "b", "c", "h", "w", "x", "y"}
    assert [add_constant(model, "w", np.zeros(1), taken).name for _ in range(2)] == ["w_1", "w_2"]
    assert taken == taken_names(model)


def test_an_overridable_weight_is_no_constant():
    model = model_of("y = Add(x, w)", inputs="float[6] x, float[6] w", weights={"w": np.zeros(6, np.float32)})
    assert constant_of(model.graph[0].inputs[1]) is None


@pytest.mark.parametrize("size", [0, 1, 4096, 16 << 20, (16 << 20) + 5])
def test_streaming_gives_every_byte(size, tmp_path, rng):
    content = rng.integers(0, 256, size, np.uint8)
    assert b"".join(map(bytes, stream_bytes(content))) == content.tobytes()
    if size:
        (tmp_path / "data").write_bytes(content.tobytes())
        mapped = np.frombuffer(map_file(tmp_path / "data"), np.uint8)
        assert b"".join(map(bytes, stream_bytes(mapped[1:]))) == content[1:].tobytes()
        assert mapped.tobytes() == content.tobytes()


def resident_bytes(mapping_path):
    """How much of a mapped file is in this process's memory."""
    lines = Path("/proc/self/smaps").read_text(encoding="utf-8").split("\n")
    start = next(index for index, line in enumerate(lines) if line.endswith(str(mapping_path)))
    return 1024 * int(next(line for line in lines[start:] if line.startswith("Rss:")).split()[1])


def test_streaming_does_not_stay_resident(tmp_path):
    path = tmp_path / "data"
    path.write_bytes(bytes(40 << 20))
    array = np.frombuffer(map_file(path), np.float32)
    for _ in stream_bytes(array):
        pass
    assert resident_bytes(path) < 1 << 20
    assert array.sum() == 0
    assert resident_bytes(path) > 39 << 20
    release_pages(array)
    assert resident_bytes(path) < 1 << 20


def test_a_mapped_file_is_read_only(tmp_path):
    (tmp_path / "data").write_bytes(b"1234")
    mapping = map_file(tmp_path / "data")
    assert isinstance(mapping, mmap.mmap)
    with pytest.raises(TypeError):
        mapping[0] = 0


def test_a_file_is_replaced_whole(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"old")
    with replace_file(path) as file:
        file.write(b"new")
        assert path.read_bytes() == b"old"
    assert path.read_bytes() == b"new"
    assert [entry.name for entry in tmp_path.iterdir()] == ["file"]


def test_a_failed_write_leaves_the_old_file(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"old")
    with pytest.raises(ZeroDivisionError), replace_file(path) as file:
        file.write(b"new")
        raise ZeroDivisionError
    assert path.read_bytes() == b"old"
    assert [entry.name for entry in tmp_path.iterdir()] == ["file"]


def test_a_folder_that_is_not_there(tmp_path):
    with pytest.raises(DeviceError, match="cannot write") as caught, replace_file(tmp_path / "no" / "file"):
        pass
    assert caught.value.got == "No such file or directory"
