# SPDX-License-Identifier: Apache-2.0
"""External data: mapped where it lies, refused where it is missing, damaged or outside the folder."""

import os

import numpy as np
import onnx
import pytest

from quantrt.ir.session import float_session
from quantrt.model.load import load_model
from tests.unit.model.check_pass import error_of, proto_of

WEIGHT = np.arange(12, dtype=np.float32).reshape(3, 4)


CONTENT = WEIGHT.tobytes()


def write(folder, *, content=CONTENT, location="w.bin", **entries):
    """A model whose weight is external; the file is written unless `content` is None."""
    proto = proto_of("y = MatMul(x, w)", inputs="float[2,3] x")
    weight = onnx.TensorProto(name="w", dims=WEIGHT.shape, data_type=1, data_location=1)
    for key, value in ({"location": location} | entries).items():
        weight.external_data.add(key=key, value=str(value))
    proto.graph.initializer.append(weight)
    path = folder / "model.onnx"
    path.write_bytes(proto.SerializeToString())
    if content is not None:
        (folder / "w.bin").write_bytes(content)
    return path


@pytest.mark.parametrize("entries", [{}, {"offset": 0, "length": 48}, {"length": 48}], ids=str)
def test_it_is_read(entries, tmp_path, rng):
    model = load_model(write(tmp_path, **entries))
    x = rng.standard_normal((2, 3)).astype(np.float32)
    np.testing.assert_allclose(float_session(model.graph).run(None, {"x": x})[0], x @ WEIGHT, rtol=1e-6)
    assert model.file_bytes == (tmp_path / "model.onnx").stat().st_size + 48


@pytest.mark.parametrize("offset", [4096, 5, 0])
def test_it_is_read_at_any_offset(offset, tmp_path):
    path = write(tmp_path, content=bytes(offset) + WEIGHT.tobytes() + bytes(9), offset=offset, length=48)
    weight = load_model(path).graph.graph.initializers["w"].const_value.numpy()
    np.testing.assert_array_equal(weight, WEIGHT)
    assert not weight.flags.writeable


def test_it_survives_the_file(tmp_path):
    model = load_model(write(tmp_path))
    (tmp_path / "w.bin").unlink()
    np.testing.assert_array_equal(model.graph.graph.initializers["w"].const_value.numpy(), WEIGHT)


def test_a_subfolder_and_a_link_inside_the_folder_are_fine(tmp_path):
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "real.bin").write_bytes(WEIGHT.tobytes())
    (tmp_path / "data" / "w.bin").symlink_to("real.bin")
    model = load_model(write(tmp_path, location="data/w.bin"))
    np.testing.assert_array_equal(model.graph.graph.initializers["w"].const_value.numpy(), WEIGHT)


def test_a_missing_file(tmp_path):
    error = error_of(write(tmp_path, content=None))
    assert "'w' is missing" in error.message
    assert "'w.bin'" in error.message
    assert error.hint


@pytest.mark.parametrize("size", [0, 1, 47])
def test_a_truncated_file(size, tmp_path):
    error = error_of(write(tmp_path, content=bytes(size)))
    assert "truncated" in error.message
    assert error.got in ("an empty file", f"a file of {size} bytes")


BAD_ENTRIES = {
    "a length that disagrees": ({"length": 40}, "40 bytes"),
    "an offset past the end": ({"offset": 10**9}, "a file of 48 bytes"),
    "an absurd offset": ({"offset": 2**70}, "a file of 48 bytes"),
    "a negative offset": ({"offset": -4}, "'-4'"),
    "an offset that is no number": ({"offset": "start"}, "'start'"),
    "a length that is no number": ({"length": "1e3"}, "'1e3'"),
}


@pytest.mark.parametrize("case", BAD_ENTRIES)
def test_places_that_cannot_be(case, tmp_path):
    entries, got = BAD_ENTRIES[case]
    assert error_of(write(tmp_path, **entries)).got == got


def test_no_location(tmp_path):
    assert "no location" in error_of(write(tmp_path, location="")).message


@pytest.mark.parametrize(
    "location", ["../secret.bin", "data/../../secret.bin", "{absolute}", "link.bin", "links/secret.bin"]
)
def test_a_path_out_of_the_folder(location, tmp_path):
    (tmp_path / "secret.bin").write_bytes(WEIGHT.tobytes())
    folder = tmp_path / "model"
    (folder / "data").mkdir(parents=True)
    (folder / "link.bin").symlink_to(tmp_path / "secret.bin")
    (folder / "links").symlink_to(tmp_path)
    error = error_of(write(folder, location=location.format(absolute=tmp_path / "secret.bin")))
    assert "outside the model's folder" in error.message
    assert error.expected == f"a file inside '{folder}'"
    assert ("cp -L" in (error.hint or "")) == location.startswith("link")


def test_a_link_to_itself(tmp_path):
    (tmp_path / "loop.bin").symlink_to("loop.bin")
    error_of(write(tmp_path, location="loop.bin"))


def test_a_folder_in_place_of_the_file(tmp_path):
    (tmp_path / "folder").mkdir()
    assert "is missing" in error_of(write(tmp_path, location="folder")).message


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read any file")
def test_a_file_that_may_not_be_read(tmp_path):
    path = write(tmp_path)
    (tmp_path / "w.bin").chmod(0)
    assert error_of(path).got == "Permission denied"


def test_external_data_in_an_attribute_and_in_a_branch(tmp_path):
    proto = proto_of(
        "k = Constant<value = float {1}>() y = If (c) <then_branch = p () => (float[...] a)"
        " { a = MatMul(x, v) }, else_branch = q () => (float[...] b) { b = MatMul(x, k) }>",
        inputs="float[2,3] x, float[3,4] v",
        weights={"c": np.array(True)},
    )
    branch = proto.graph.node[1].attribute[0].g
    branch.node[0].input[1] = "w"
    for weight in (branch.initializer.add(name="w"), proto.graph.node[0].attribute[0].t):
        weight.ClearField("float_data")
        weight.ClearField("raw_data")
        weight.data_type, weight.data_location = 1, 1
        weight.dims.extend(WEIGHT.shape)
        weight.external_data.add(key="location", value="w.bin")
    path = tmp_path / "model.onnx"
    path.write_bytes(proto.SerializeToString())
    (tmp_path / "w.bin").write_bytes(WEIGHT.tobytes())
    model = load_model(path)
    x = np.ones((2, 3), np.float32)
    got = float_session(model.graph).run(None, {"x": x, "v": WEIGHT})[0]
    np.testing.assert_allclose(got, x @ WEIGHT, rtol=1e-6)
    np.testing.assert_array_equal(model.graph.graph.initializers["k"].const_value.numpy(), WEIGHT)
