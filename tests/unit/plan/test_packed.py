# SPDX-License-Identifier: Apache-2.0
"""Graph and machine code of a program as one compressed stream."""

import builtins
import lzma

import ml_dtypes
import numpy as np
import pytest

from quantrt.errors import DeviceError
from quantrt.plan.packed import (
    LARGE_RATIO,
    MAX_UNPACKED_BYTES,
    SMALL_MODEL_BYTES,
    is_packed,
    pack,
    unpack,
)
from quantrt.plan.plan import LibraryModel
from quantrt.plan.program_json import CUBIN


def program(rng: np.random.Generator) -> LibraryModel:
    """Two kernels that are nearly alike, an empty one, a large weight and small ones."""
    code = rng.integers(0, 256, 20_000).astype(np.uint8)
    other = np.concatenate([code[:9000], rng.integers(0, 256, 10).astype(np.uint8), code[9000:]])
    weights = {
        "weight/a": rng.standard_normal((70, 300)).astype(np.float32),
        "weight/b": rng.standard_normal((7, 3)).astype(np.float32),
        "weight/c": np.array(3, np.int64),
        "weight/d": np.zeros((2, 0), np.int8),
        "weight/e": np.ones(3, ml_dtypes.bfloat16),
        f"{CUBIN}one/90": code,
        f"{CUBIN}two/90": other,
        f"{CUBIN}empty/80": code[:0],
    }
    return LibraryModel("cuda", b'{"steps":[]}', weights)


def assert_same(got: LibraryModel, want: LibraryModel) -> None:
    assert got.graph == want.graph
    assert got.weights.keys() == want.weights.keys()
    for name, array in want.weights.items():
        assert got.weights[name].dtype == array.dtype
        assert got.weights[name].shape == array.shape
        assert np.array_equal(got.weights[name], array)


def test_a_program_comes_back(rng: np.random.Generator):
    model = program(rng)
    packed = pack(model)
    assert is_packed(packed)
    assert not is_packed(model)
    assert list(packed.weights) == ["weight/a", "weight/e"]
    assert len(packed.graph) < 22_000, "kernels that are alike are stored once"
    assert pack(packed) is packed
    assert pack(model).graph == packed.graph
    assert_same(unpack(packed), model)


def test_beside_large_weights_it_is_compressed_quickly(rng: np.random.Generator):
    words = [b"alpha", b"beta", b"gamma", b"delta"]
    graph = b'{"steps":[' + b",".join(words[place] for place in rng.integers(0, 4, 20_000)) + b"]}"
    model = LibraryModel("cuda", graph, {"weight/a": np.zeros(LARGE_RATIO * len(graph) // 2, np.uint8)})
    larger = LibraryModel("cuda", graph, {"weight/a": np.zeros(2 * LARGE_RATIO * len(graph), np.uint8)})
    packed, quick = pack(model), pack(larger)
    assert len(packed.graph) < len(quick.graph) < 1.5 * len(packed.graph)
    assert_same(unpack(quick), larger)


@pytest.mark.parametrize("library", ["onnxruntime", "openvino"])
def test_a_small_model_for_a_cpu_is_packed_as_a_whole(library: str, rng: np.random.Generator):
    weights = {
        "bin": rng.integers(-40, 40, 200_000).astype(np.int8),
        "fp8": np.ones(9, ml_dtypes.float8_e4m3fn),
    }
    model = LibraryModel(library, b"<layer name='conv'/>" * 500, weights)
    packed = pack(model)
    assert list(packed.weights) == ["fp8"], "numpy does not know its type"
    assert len(packed.graph) < 180_000
    assert_same(unpack(packed), model)


def test_large_weights_of_a_model_for_a_cpu_are_not_copied(rng: np.random.Generator):
    weights = {"bin": np.zeros(SMALL_MODEL_BYTES, np.uint8), "scale": np.ones(3, np.float32)}
    model = LibraryModel("openvino", b"<net/>", weights)
    packed = pack(model)
    assert packed.weights.keys() == {"bin"}
    assert packed.weights["bin"] is weights["bin"]
    assert_same(unpack(packed), model)


def test_what_is_not_packed_stays_as_it_is(rng: np.random.Generator):
    model = program(rng)
    assert unpack(model) is model


def stream(data: bytes) -> LibraryModel:
    return LibraryModel("cuda", lzma.compress(data), {})


def index(text: bytes) -> bytes:
    return len(text).to_bytes(8, "little") + text


DAMAGED = {
    "nothing": b"",
    "an index that is no JSON": index(b"{") + b"graph",
    "an index without a graph": index(b'{"arrays":[]}'),
    "an index of something else": index(b"[1]"),
    "parts that are longer": index(b'{"graph":9,"arrays":[]}') + b"graph",
    "parts that are shorter": index(b'{"graph":3,"arrays":[["cubin/a/90","|u1",[1]]]}') + b"graph",
    "objects": index(b'{"graph":5,"arrays":[["weight/a","|O",[0]]]}') + b"graph",
    "an array without a shape": index(b'{"graph":5,"arrays":[["weight/a","|u1"]]}') + b"graph",
    "a negative size": index(b'{"graph":9,"arrays":[["cubin/a/90","|u1",[-4]]]}') + b"graph",
}


@pytest.mark.parametrize("case", DAMAGED)
def test_a_damaged_index_is_an_error(case: str):
    with pytest.raises(ValueError, match="its index|its parts|Expecting|unpack"):
        unpack(stream(DAMAGED[case]))


def test_a_damaged_stream_is_an_error(rng: np.random.Generator):
    model = pack(program(rng))
    flipped = bytearray(model.graph)
    flipped[len(flipped) // 2] ^= 1
    for graph in (model.graph[:-30], model.graph + b"more", bytes(flipped)):
        with pytest.raises(ValueError, match=r"cut off|Corrupt|orrupt"):
            unpack(LibraryModel("cuda", graph, {}))


def test_a_stream_that_claims_to_be_endless_is_an_error(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("quantrt.plan.packed.MAX_UNPACKED_BYTES", 1000)
    assert MAX_UNPACKED_BYTES > 1000
    with pytest.raises(ValueError, match="cut off"):
        unpack(stream(b"0" * 2000))


def test_a_stream_that_wants_too_much_memory_is_an_error(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("quantrt.plan.packed.MAX_WORKING_BYTES", 1 << 20)
    with pytest.raises(ValueError, match="[Mm]emory"):
        unpack(stream(b"0" * 100))


def test_a_python_without_lzma_is_told(monkeypatch: pytest.MonkeyPatch, rng: np.random.Generator):
    real = builtins.__import__

    def without(name: str, *args: object, **kwargs: object) -> object:
        if name == "lzma":
            raise ImportError("No module named '_lzma'")
        return real(name, *args, **kwargs)

    model = program(rng)
    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(DeviceError, match="built without lzma"):
        pack(model)
