# SPDX-License-Identifier: Apache-2.0
"""A saved model is whole, equal, and nowhere when it could not be written."""

import errno
import os
import resource
import subprocess
import sys
import textwrap

import ml_dtypes
import numpy as np
import onnx
import onnx_ir as ir
import pytest

from quantrt.errors import DeviceError
from quantrt.model.file.save import save_model
from quantrt.model.fingerprint import fingerprint
from quantrt.model.load import load_model
from tests.unit.model.check_pass import model_of, run


def files_in(folder):
    return sorted(path.name for path in folder.iterdir())


@pytest.fixture
def model(rng):
    return model_of(
        "a = MatMul(x, w) b = Add(a, small) y = MatMul(b, v)",
        inputs="float[2,64] x",
        weights={
            "w": rng.standard_normal((64, 80)).astype(np.float32),
            "small": rng.standard_normal(80).astype(np.float32),
            "v": rng.standard_normal((80, 33)).astype(np.float32),
        },
    )


@pytest.mark.parametrize("max_file_bytes", [2**31 - 1, 1000], ids=["one file", "external data"])
def test_it_comes_back_equal(max_file_bytes, model, tmp_path, rng):
    path = tmp_path / "out.onnx"
    save_model(model, path, max_file_bytes=max_file_bytes)
    names = ["out.onnx"] if max_file_bytes > 1000 else ["out.onnx", "out.onnx.data"]
    assert files_in(tmp_path) == names
    assert len(onnx.load(path).graph.initializer) == 3
    x = rng.standard_normal((2, 64)).astype(np.float32)
    np.testing.assert_array_equal(run(load_model(path).graph, {"x": x})[0], run(model, {"x": x})[0])
    assert load_model(path).fingerprint == fingerprint(model)


def test_it_replaces_the_file_it_was_mapped_from(model, tmp_path):
    path = tmp_path / "model.onnx"
    for max_file_bytes in (2**31 - 1, 1000, 1000, 2**31 - 1):
        save_model(model, path, max_file_bytes=max_file_bytes)
        model = load_model(path).graph
    assert load_model(path).fingerprint == fingerprint(model)


DTYPES = [
    np.float16,
    np.int8,
    np.uint8,
    np.float64,
    np.bool_,
    ml_dtypes.bfloat16,
    ml_dtypes.float8_e4m3fn,
    ml_dtypes.int4,
]


@pytest.mark.parametrize("dtype", DTYPES, ids=lambda dtype: dtype.__name__)
@pytest.mark.parametrize("max_file_bytes", [2**31 - 1, 1000], ids=["one file", "external data"])
def test_every_element_type(dtype, max_file_bytes, tmp_path, rng):
    array = rng.integers(0, 2, (100, 101)).astype(dtype)
    model = model_of("y = Cast<to=1>(x)", opset=21)
    model.ir_version = 10
    value = ir.Value(name="w", const_value=ir.Tensor(array, name="w"))
    model.graph.register_initializer(value)
    save_model(model, tmp_path / "out.onnx", max_file_bytes=max_file_bytes)
    proto = onnx.load(tmp_path / "out.onnx")
    back = onnx.numpy_helper.to_array(proto.graph.initializer[0])
    np.testing.assert_array_equal(back.astype(np.float32), array.astype(np.float32))


def test_text_and_subgraphs_are_kept(tmp_path):
    proto = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["": 17]> g (bool c, string[N] x) => (string[N] y)'
        " { y = If (c) <then_branch = p () => (string[N] a) { a = Identity(x) },"
        " else_branch = q () => (string[M] b) { b = Identity(words) }> }"
    )
    proto.graph.initializer.append(
        onnx.helper.make_tensor("words", onnx.TensorProto.STRING, [2], [b"one", b"two"])
    )
    model = ir.from_proto(proto)
    save_model(model, tmp_path / "out.onnx")
    again = load_model(tmp_path / "out.onnx").graph
    feeds = {"c": np.array(False), "x": np.array(["zero"], dtype=object)}
    assert run(again, feeds)[0].tolist() == ["one", "two"]


def test_a_full_disk_leaves_nothing(model, tmp_path, monkeypatch):
    from quantrt.model.file import save

    def full(file, array):
        file.write(array.tobytes()[:100])
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(save, "_write_array", full)
    for max_file_bytes in (2**31 - 1, 1000):
        with pytest.raises(DeviceError) as caught:
            save_model(model, tmp_path / "out.onnx", max_file_bytes=max_file_bytes)
        assert "out.onnx" in caught.value.message
        assert caught.value.got == "No space left on device"
        assert files_in(tmp_path) == []


def test_a_real_write_failure_keeps_the_old_file(model, tmp_path):
    """RLIMIT_FSIZE makes the kernel itself refuse the write."""
    path = tmp_path / "model.onnx"
    save_model(model, path)
    before = path.read_bytes()
    script = f"""
        import resource, signal
        from pathlib import Path
        from quantrt.errors import DeviceError
        from quantrt.model.load import load_model
        from quantrt.model.file.save import save_model
        model = load_model({str(path)!r})
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (5000, 5000))
        try:
            save_model(model.graph, Path({str(path)!r}))
        except DeviceError as error:
            print(error.got)
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script)],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert done.stdout.strip() == os.strerror(errno.EFBIG)
    assert files_in(tmp_path) == ["model.onnx"]
    assert path.read_bytes() == before
    assert resource.getrlimit(resource.RLIMIT_FSIZE)[0] != 5000


def test_weights_beside_a_model_are_not_left_without_it(model, tmp_path):
    path = tmp_path / "model.onnx"
    save_model(model, path, max_file_bytes=1000)
    before = {name: (tmp_path / name).read_bytes() for name in files_in(tmp_path)}
    model.graph.initializers["w"].const_value = ir.tensor(np.zeros((64, 80), np.float32), name="w")
    model.graph.doc_string = "much of it " * 100_000
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (600_000, hard))  # room for the weights alone
    try:
        with pytest.raises(DeviceError, match=r"cannot write '.*model\.onnx'"):
            save_model(model, path, max_file_bytes=1000)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert {name: (tmp_path / name).read_bytes() for name in files_in(tmp_path)} == before


UNWRITABLE = {
    "no such folder": lambda folder: folder / "nowhere" / "out.onnx",
    "a folder": lambda folder: folder,
    "under a file": lambda folder: folder / "file" / "out.onnx",
}


@pytest.mark.parametrize("case", UNWRITABLE)
def test_an_unwritable_path(case, model, tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(DeviceError, match="cannot write") as caught:
        save_model(model, UNWRITABLE[case](tmp_path))
    assert caught.value.got
    assert files_in(tmp_path) == ["file"]
