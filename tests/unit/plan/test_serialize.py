# SPDX-License-Identifier: Apache-2.0
"""Engine files: what is written is what is read, and nothing else is read at all."""

import base64
import dataclasses
import hashlib
import json
import mmap
import re
import tempfile
import zipfile
import zlib
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
import safetensors.numpy
from hypothesis import given
from hypothesis import strategies as st

from quantrt.errors import DeviceError, InternalError, ModelError, QuantRtError
from quantrt.ir.tensor_spec import TensorSpec
from quantrt.model.model import Fingerprint
from quantrt.plan.container import FORMAT_VERSION, open_container, write_container
from quantrt.plan.header import header_of
from quantrt.plan.packed import MAGIC, pack
from quantrt.plan.plan import ExecOptions, Layer, LibraryModel, Plan
from quantrt.plan.serialize import load_plan, peek_plan, save_plan

DTYPES = (
    np.float64,
    np.float32,
    np.float16,
    ml_dtypes.bfloat16,
    ml_dtypes.float8_e4m3fn,
    np.int64,
    np.int32,
    np.int16,
    np.int8,
    np.uint8,
    np.bool_,
)


def small_plan(**fields) -> Plan:
    """A plan without a runnable model: the file does not care."""
    weights = {
        "conv.w": np.arange(24, dtype=np.float32).reshape(2, 3, 4),
        "q": np.arange(-3, 4, dtype=np.int8),
        "empty": np.zeros((0, 5), np.float32),
        "scalar": np.array(7, np.int64),
    }
    values = {
        "model": LibraryModel("onnxruntime", b"\x08graph bytes", weights),
        "options": ExecOptions(threads=3, hint="throughput"),
        "inputs": (TensorSpec("x", "float32", ("N", 3, None)), TensorSpec("any", "int64", None)),
        "outputs": (TensorSpec("y", "float32", ()),),
        "precision": "int8",
        "layers": (
            Layer(name="c", op_type="Conv", precision="int8", reason="eligible", sources=("c", "bn")),
        ),
        "fingerprint": Fingerprint("ab", "cd"),
        "device": {"cpu": "A CPU", "isa": ["avx2"]},
        "is_calibrated": False,
        "report": {"rows": [1, 2.5, None, "é"], "nested": {"a": True}},
    }
    return Plan(**{**values, **fields})


def assert_same(got: Plan, want: Plan) -> None:
    """Field by field; arrays bit by bit."""
    for field in dataclasses.fields(Plan):
        if field.name != "model":
            assert getattr(got, field.name) == getattr(want, field.name), field.name
    assert (got.model.library, got.model.graph) == (want.model.library, want.model.graph)
    assert set(got.model.weights) == set(want.model.weights)
    for name, array in want.model.weights.items():
        read = got.model.weights[name]
        assert (read.dtype, read.shape) == (array.dtype, array.shape), name
        assert read.tobytes() == array.tobytes(), name


@pytest.fixture
def engine_path(tmp_path: Path) -> Path:
    path = tmp_path / "model.qrt"
    save_plan(small_plan(), path)
    return path


@pytest.fixture
def large_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An engine whose weights are beside its graph, as large ones are."""
    monkeypatch.setattr("quantrt.plan.packed.SMALL_BYTES", -1)
    monkeypatch.setattr("quantrt.plan.packed.SMALL_MODEL_BYTES", -1)
    path = tmp_path / "large.qrt"
    save_plan(small_plan(), path)
    return path


# ---- what is written is what is read

names = st.text(min_size=1, max_size=12).filter(lambda text: text.isprintable())
dims = st.one_of(st.none(), st.integers(0, 2**40), names)
specs = st.builds(
    TensorSpec,
    names,
    st.sampled_from(["float32", "string"]),
    st.none() | st.lists(dims, max_size=5).map(tuple),
)
layers = st.builds(
    Layer,
    name=names,
    op_type=names,
    precision=names,
    reason=names,
    sources=st.lists(names, max_size=3).map(tuple),
)
json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=9),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=9), inner, max_size=3),
    max_leaves=8,
)


@st.composite
def arrays(draw) -> np.ndarray:
    shape = draw(st.lists(st.integers(0, 4), max_size=4))
    size = int(np.prod(shape)) if shape else 1
    dtype = np.dtype(draw(st.sampled_from(DTYPES)))
    if dtype == np.bool_:
        return np.array(draw(st.lists(st.booleans(), min_size=size, max_size=size)), bool).reshape(shape)
    raw = draw(st.binary(min_size=size * dtype.itemsize, max_size=size * dtype.itemsize))
    return np.frombuffer(raw, dtype).reshape(shape)


plans = st.builds(
    Plan,
    model=st.builds(
        LibraryModel,
        st.sampled_from(["onnxruntime", "openvino"]),
        st.binary(max_size=40).filter(lambda graph: not graph.startswith(MAGIC)),  # as no library's does
        st.dictionaries(names, arrays(), max_size=4),
    ),
    options=st.builds(
        ExecOptions,
        threads=st.none() | st.integers(1, 64),
        hint=st.just("latency"),
        keeps_floats=st.booleans(),
        one_thread_shapes=st.none()
        | st.lists(st.lists(st.integers(0, 9), max_size=4).map(tuple), max_size=3).map(tuple),
    ),
    inputs=st.lists(specs, max_size=3).map(tuple),
    outputs=st.lists(specs, max_size=3).map(tuple),
    precision=st.sampled_from(["int8", "fp32", "bf16"]),
    layers=st.lists(layers, max_size=3).map(tuple),
    fingerprint=st.builds(Fingerprint, names, names),
    device=st.dictionaries(names, json_values, max_size=3),
    is_calibrated=st.booleans(),
    report=st.dictionaries(names, json_values, max_size=3),
)


@given(plan=plans)
def test_load_gives_what_save_got(plan: Plan):
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.qrt"
        save_plan(plan, path)
        assert_same(load_plan(path), plan)


def test_the_file_is_a_valid_safetensors_file(large_path: Path):
    tensors = safetensors.numpy.load_file(large_path)
    assert set(tensors) == {"graph", "weights/conv.w", "weights/q", "weights/empty", "weights/scalar"}
    np.testing.assert_array_equal(tensors["weights/conv.w"], small_plan().model.weights["conv.w"])
    with safetensors.safe_open(large_path, framework="np") as file:
        assert json.loads(file.metadata()["quantrt"])["format_version"] == FORMAT_VERSION


def test_weights_are_mapped_aligned_and_read_only(large_path: Path):
    weights = load_plan(large_path).model.weights
    for name in ("conv.w", "q"):
        base = weights[name]
        while isinstance(base, np.ndarray):
            base = base.base
        owner = base.obj if isinstance(base, memoryview) else base
        assert isinstance(owner, mmap.mmap), f"{name} was copied"
        assert weights[name].flags.aligned
        assert not weights[name].flags.writeable


def test_small_weights_are_compressed_with_the_graph(engine_path: Path):
    assert safetensors.numpy.load_file(engine_path).keys() == {"graph"}
    weights = load_plan(engine_path).model.weights
    assert all(array.flags.aligned and not array.flags.writeable for array in weights.values())


def test_weights_of_widest_elements_start_on_a_cache_line(tmp_path: Path):
    weights = {"bin": np.arange(100, dtype=np.uint8)}
    save_plan(small_plan(model=LibraryModel("openvino", b"<net/>", weights)), tmp_path / "m.qrt")
    assert load_plan(tmp_path / "m.qrt").model.weights["bin"].ctypes.data % 64 == 0


def test_peek_reads_everything_but_the_model(engine_path: Path):
    facts = peek_plan(engine_path)
    want = small_plan()
    assert_same(facts.plan, dataclasses.replace(want, model=LibraryModel("onnxruntime", b"", {})))
    assert facts.model_bytes == pack(want.model).size_bytes
    assert facts.file_bytes == engine_path.stat().st_size
    assert facts.format_version == FORMAT_VERSION


def test_non_contiguous_weights_are_written_in_their_own_order(tmp_path: Path):
    array = np.arange(12, dtype=np.float32).reshape(3, 4).T
    save_plan(small_plan(model=LibraryModel("onnxruntime", b"g", {"w": array})), tmp_path / "m.qrt")
    np.testing.assert_array_equal(load_plan(tmp_path / "m.qrt").model.weights["w"], array)


def test_an_engine_can_be_saved_over_the_file_it_is_mapped_from(engine_path: Path):
    plan = load_plan(engine_path)
    save_plan(dataclasses.replace(plan, precision="fp32"), engine_path)
    assert_same(plan, small_plan())
    assert load_plan(engine_path).precision == "fp32"


def test_the_file_gets_the_usual_mode(engine_path: Path):
    other = engine_path.with_name("other")
    other.touch()
    assert engine_path.stat().st_mode == other.stat().st_mode


# ---- writing fails whole


def folder_is_missing(tmp_path: Path) -> Path:
    return tmp_path / "nowhere" / "model.qrt"


def folder_is_a_file(tmp_path: Path) -> Path:
    (tmp_path / "file").touch()
    return tmp_path / "file" / "model.qrt"


def path_is_a_folder(tmp_path: Path) -> Path:
    (tmp_path / "model.qrt").mkdir()
    return tmp_path / "model.qrt"


@pytest.mark.parametrize("make_path", [folder_is_missing, folder_is_a_file, path_is_a_folder])
def test_an_unwritable_path_is_named_and_nothing_is_left(make_path, tmp_path: Path):
    path = make_path(tmp_path)
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(DeviceError, match=str(path)):
        save_plan(small_plan(), path)
    assert sorted(tmp_path.rglob("*")) == before


def test_a_full_disk_keeps_the_old_file(engine_path: Path):
    old = engine_path.read_bytes()
    full = Path("/dev/full")
    if not full.exists():
        pytest.skip("no /dev/full on this system")

    weights = {"w": np.zeros(1000, np.float32)}
    plan = small_plan(model=LibraryModel("onnxruntime", b"g", weights))
    original = Path.open

    def open_full(self: Path, mode: str = "r", *args, **kwargs):
        return original(full if mode == "xb" else self, "wb" if mode == "xb" else mode, *args, **kwargs)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Path, "open", open_full)
        with pytest.raises(DeviceError, match="No space left on device"):
            save_plan(plan, engine_path)
    assert engine_path.read_bytes() == old
    assert list(engine_path.parent.iterdir()) == [engine_path]


@pytest.mark.parametrize("value", [float("nan"), float("inf"), np.float32(1.0), object()])
def test_a_report_that_is_not_json_is_refused(value: object, tmp_path: Path):
    with pytest.raises(InternalError, match="not JSON"):
        save_plan(small_plan(report={"value": value}), tmp_path / "m.qrt")
    assert list(tmp_path.iterdir()) == []


def test_an_element_type_without_a_place_in_the_format_is_refused(tmp_path: Path):
    weights = {"w": np.zeros(2, np.complex64)}
    with pytest.raises(InternalError, match="complex64"):
        save_plan(small_plan(model=LibraryModel("onnxruntime", b"g", weights)), tmp_path / "m.qrt")


# ---- foreign, damaged and newer files


def onnx_file(path: Path) -> None:
    path.write_bytes(b"\x08\x0a\x12\x07pytorch" + bytes(100))


def zip_file(path: Path) -> None:
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("a", "b")


def plain_safetensors(path: Path) -> None:
    safetensors.numpy.save_file({"graph": np.zeros(3, np.uint8)}, path, metadata={"format": "pt"})


def json_file(path: Path) -> None:
    path.write_text('{"a": 1, "b": [2, 3]}')


@pytest.mark.parametrize(
    ("write", "kind"),
    [
        (onnx_file, "ONNX"),
        (zip_file, "zip"),
        (plain_safetensors, "safetensors"),
        (json_file, "unknown"),
        (Path.touch, "empty"),
    ],
)
def test_a_foreign_file_is_told_apart(write, kind: str, tmp_path: Path):
    path = tmp_path / "model.qrt"
    write(path)
    with pytest.raises(ModelError, match="not a QuantRT engine") as caught:
        load_plan(path)
    assert kind in caught.value.got
    with pytest.raises(ModelError, match="not a QuantRT engine"):
        peek_plan(path)


def test_a_missing_file_names_the_nearest(engine_path: Path):
    with pytest.raises(ModelError, match="no such file") as caught:
        load_plan(engine_path.with_name("modal.qrt"))
    assert "model.qrt" in caught.value.hint
    with pytest.raises(ModelError, match="no such file") as caught:
        load_plan(engine_path.parent / "none" / "model.qrt")
    assert "a path that exists" in caught.value.hint


def test_a_folder_is_not_an_engine(tmp_path: Path):
    with pytest.raises(ModelError, match="cannot read engine") as caught:
        load_plan(tmp_path)
    assert caught.value.got == "a folder"


def test_every_changed_byte_is_noticed(engine_path: Path, rng: np.random.Generator):
    whole = engine_path.read_bytes()
    masks = rng.integers(1, 256, len(whole))
    for position, mask in enumerate(masks):
        damaged = bytearray(whole)
        damaged[position] ^= int(mask)
        engine_path.write_bytes(damaged)
        with pytest.raises(QuantRtError):
            load_plan(engine_path)


def test_every_truncation_and_extension_is_noticed(engine_path: Path, rng: np.random.Generator):
    whole = engine_path.read_bytes()
    for length in {0, 1, 7, 8, 9, 100, len(whole) - 1, *rng.integers(0, len(whole), 50).tolist()}:
        engine_path.write_bytes(whole[:length])
        with pytest.raises(ModelError):
            load_plan(engine_path)
    engine_path.write_bytes(whole + b"\0")
    with pytest.raises(ModelError, match="damaged"):
        load_plan(engine_path)


@given(data=st.binary(max_size=300), keep=st.integers(0, 60))
def test_garbage_is_a_typed_error(data: bytes, keep: int):
    opening = b'\x40\0\0\0\0\0\0\0{"__metadata__":{"quantrt":"{'
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.qrt"
        path.write_bytes(opening[:keep] + data)
        with pytest.raises(ModelError):
            load_plan(path)


@pytest.mark.parametrize("length", [2**63, 2**64 - 1, 200_000_000])
def test_an_absurd_header_length_is_not_allocated(length: int, engine_path: Path):
    whole = bytearray(engine_path.read_bytes())
    whole[:8] = length.to_bytes(8, "little")
    engine_path.write_bytes(whole)
    with pytest.raises(ModelError, match="damaged") as caught:
        load_plan(engine_path)
    assert str(length) in caught.value.got


def write_header(path: Path, **changes: object) -> None:
    """A file with right checksums and a header of which some fields are changed; None removes a field."""
    header = {"format_version": FORMAT_VERSION, **header_of(small_plan()), **changes}
    header = {key: value for key, value in header.items() if value is not None}
    write_container(path, header, {"graph": np.zeros(4, np.uint8)})


def test_a_newer_format_says_so(tmp_path: Path):
    path = tmp_path / "model.qrt"
    write_header(path, format_version=FORMAT_VERSION + 1, library="something new", layers="of another kind")
    for read in (load_plan, peek_plan):
        with pytest.raises(ModelError, match="newer QuantRT"):
            read(path)


def test_an_unknown_library_is_named(tmp_path: Path):
    path = tmp_path / "model.qrt"
    write_header(path, library="tensorrt")
    with pytest.raises(ModelError, match="not known") as caught:
        load_plan(path)
    assert "tensorrt" in caught.value.got


OPTIONS = {"threads": 1, "hint": "latency", "float_precision": "fp32"}


def test_a_header_is_read_as_it_was_written(tmp_path: Path):
    """What the damaged ones below differ from."""
    write_header(tmp_path / "model.qrt", options=OPTIONS)
    assert load_plan(tmp_path / "model.qrt").options == ExecOptions(threads=1, hint="latency")


@pytest.mark.parametrize(
    "changes",
    [
        {"layers": [[1, 2]]},
        {"layers": [["a", "b", "c", "d", [5]]]},
        {"inputs": [["x", "float32", [True]]]},
        {"inputs": [["x", "float32", [1.5]]]},
        {"inputs": 5},
        {"options": {"threads": 1}},
        {"options": {**OPTIONS, "unknown": 2}},
        {"options": {**OPTIONS, "threads": "many"}},
        {"options": {**OPTIONS, "threads": 0}},
        {"options": {**OPTIONS, "threads": True}},
        {"options": {**OPTIONS, "hint": "speed"}},
        {"options": {**OPTIONS, "float_precision": "fp64"}},
        {"options": {**OPTIONS, "keeps_floats": 1}},
        {"options": {**OPTIONS, "one_thread_shapes": [[1, -1]]}},
        {"inputs": [["x", "float32", [1], -0.5, ""]]},
        {"inputs": [["x", "float32", [1], None, "sideways"]]},
        {"precision": 8},
        {"is_calibrated": "yes"},
        {"library": None},
        {"library": 7},
        {"library": ["onnxruntime"]},
        {"fingerprint": {}},
        {"device": [1]},
        {"report": "text"},
    ],
    ids=str,
)
def test_a_header_of_another_shape_is_a_damaged_file(changes: dict[str, object], tmp_path: Path):
    path = tmp_path / "model.qrt"
    write_header(path, **changes)
    with pytest.raises(ModelError, match="damaged"):
        load_plan(path)


UNPACKED = {"layers": [], "report": {}}
PACKED = base64.b64decode(header_of(small_plan())["packed"])


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (PACKED[:-5], "cut off"),
        (PACKED + b"more", "does not end where it should"),
        (b"no zlib", "zlib|header check"),
        (zlib.compress(b"[1, 2]"), "TypeError"),
    ],
    ids=["cut off", "longer", "not compressed", "a list"],
)
def test_a_damaged_compressed_part_says_what_is_wrong(content: bytes, reason: str, tmp_path: Path):
    path = tmp_path / "model.qrt"
    write_header(path, packed=base64.b64encode(content).decode())
    with pytest.raises(ModelError, match="damaged") as caught:
        load_plan(path)
    assert re.search(reason, str(caught.value.got))


def test_a_compressed_part_is_not_read_beyond_what_a_header_may_be(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    path = tmp_path / "model.qrt"
    write_header(path, packed=base64.b64encode(zlib.compress(b" " * 5000 + b"{}")).decode(), **UNPACKED)
    load_plan(path)
    monkeypatch.setattr("quantrt.plan.header.MAX_UNPACKED_BYTES", 5000)
    with pytest.raises(ModelError, match="damaged"):
        load_plan(path)


def write_raw(path: Path, entry: dict[str, object], *, version: int = FORMAT_VERSION) -> None:
    """A file whose checksums are right and whose only tensor, of 4 bytes, is described by `entry`."""
    data, zeros = bytes(4), "0" * 64
    digest = hashlib.sha256(data)
    header = {
        "header_sha256": zeros,
        "data_sha256": (digest if version < 3 else hashlib.sha256(digest.digest())).hexdigest(),
        "format_version": version,
        **header_of(small_plan()),
    }
    table = {"__metadata__": {"quantrt": json.dumps(header, separators=(",", ":"))}, "graph": entry}
    raw = json.dumps(table, separators=(",", ":")).encode()
    raw = raw.replace(zeros.encode(), hashlib.sha256(raw).hexdigest().encode(), 1)
    path.write_bytes(len(raw).to_bytes(8, "little") + raw + data)


@pytest.mark.parametrize("version", [2, 3])
def test_a_file_put_together_by_hand_is_read(version: int, tmp_path: Path):
    write_raw(tmp_path / "m.qrt", {"dtype": "U8", "shape": [4], "data_offsets": [0, 4]}, version=version)
    assert load_plan(tmp_path / "m.qrt").model.graph == bytes(4)


@pytest.mark.parametrize("block_bytes", [1, 64, 100, 300, 1 << 20])
def test_weights_are_checked_block_by_block(
    block_bytes: int, tmp_path: Path, rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("quantrt.plan.container._BLOCK_BYTES", block_bytes)
    tensors = {
        name: rng.integers(0, 256, size, np.uint8) for name, size in (("a", 100), ("b", 0), ("c", 207))
    }
    path = tmp_path / "m.qrt"
    write_container(path, {"format_version": FORMAT_VERSION}, tensors)
    found = open_container(path).tensors
    assert all(np.array_equal(found[name], array) for name, array in tensors.items())
    whole = path.read_bytes()
    for place in (-1, -150, -307):
        changed = bytearray(whole)
        changed[place] ^= 1
        (tmp_path / "changed.qrt").write_bytes(changed)
        with pytest.raises(ModelError, match="damaged"):
            open_container(tmp_path / "changed.qrt")


@pytest.mark.parametrize(
    "entry",
    [
        {"dtype": "U8", "shape": [8], "data_offsets": [0, 8]},
        {"dtype": "U8", "shape": [3], "data_offsets": [0, 3]},
        {"dtype": "U8", "shape": [3], "data_offsets": [1, 4]},
        {"dtype": "U8", "shape": [5], "data_offsets": [0, 4]},
        {"dtype": "F32", "shape": [4], "data_offsets": [0, 4]},
        {"dtype": "U8", "shape": [-4], "data_offsets": [0, 4]},
        {"dtype": "U8", "shape": [2**40, 2**40], "data_offsets": [0, 4]},
        {"dtype": "U8", "shape": "4", "data_offsets": [0, 4]},
        {"dtype": "U8", "shape": [4], "data_offsets": [4, 0]},
        {"dtype": "U8", "shape": [4], "data_offsets": [0]},
        {"dtype": "NONE", "shape": [4], "data_offsets": [0, 4]},
        {"dtype": "F8_E8M0", "shape": [4], "data_offsets": [0, 4]},
        {},
    ],
    ids=str,
)
def test_a_tensor_in_the_wrong_place_is_a_damaged_file(entry: dict[str, object], tmp_path: Path):
    write_raw(tmp_path / "m.qrt", entry)
    with pytest.raises(ModelError, match="damaged"):
        load_plan(tmp_path / "m.qrt")


def test_a_file_without_a_graph_is_damaged(tmp_path: Path):
    path = tmp_path / "model.qrt"
    write_container(path, {"format_version": FORMAT_VERSION, **header_of(small_plan())}, {})
    with pytest.raises(ModelError, match="damaged"):
        load_plan(path)
