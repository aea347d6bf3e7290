# SPDX-License-Identifier: Apache-2.0
import io
import logging
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from quantrt.calibrate.dataset import Dataset, open_dataset, random_dataset
from quantrt.calibrate.records import Layout
from quantrt.errors import DataError, UsageError
from quantrt.ir.tensor_spec import TensorSpec

X = TensorSpec("x", "float32", ("N", 3))
IDS = TensorSpec("ids", "int64", ("N", "S"))
MASK = TensorSpec("mask", "int64", ("N", "S"))
FIXED = TensorSpec("x", "float32", (4, 3))
STATE = (
    TensorSpec("input", "float32", (1, 8)),
    TensorSpec("state", "float32", (2, 1, 4)),
    TensorSpec("rate", "int64", ()),
)


def rows(dataset: Dataset, batch_size: int = 1, name: str = "x") -> np.ndarray:
    """All samples in order, padding left out."""
    return np.concatenate([batch.inputs[name][: batch.count] for batch in dataset.batches(batch_size)])


@pytest.fixture
def x(rng) -> np.ndarray:
    return rng.standard_normal((10, 3), np.float32)


def as_npz(x: np.ndarray, path: Path) -> Path:
    np.savez(path / "d.npz", x=x)
    return path / "d.npz"


def as_compressed_npz(x: np.ndarray, path: Path) -> Path:
    np.savez_compressed(path / "d.npz", anything=x)
    return path / "d.npz"


def as_npy(x: np.ndarray, path: Path) -> Path:
    np.save(path / "d.npy", x)
    return path / "d.npy"


def as_fortran_npy(x: np.ndarray, path: Path) -> Path:
    np.save(path / "d.npy", np.asfortranarray(x))
    return path / "d.npy"


def as_folder_of_samples(x: np.ndarray, path: Path) -> Path:
    for index, row in enumerate(x):
        np.save(path / f"{index:03}.npy", row)
    return path


def as_folder_of_batches(x: np.ndarray, path: Path) -> Path:
    np.savez(path / "a.npz", x=x[:7])
    np.savez(path / "b.npz", x=x[7:])
    return path


def as_dicts_of_samples(x: np.ndarray, path: Path) -> list:
    return [{"x": row} for row in x]


def as_dicts_of_batches(x: np.ndarray, path: Path) -> list:
    return [{"x": x[:6]}, {"x": x[6:]}]


FORMS = [
    as_npz, as_compressed_npz, as_npy, as_fortran_npy, as_folder_of_samples, as_folder_of_batches,
    as_dicts_of_samples, as_dicts_of_batches,
    lambda x, path: {"x": x}, lambda x, path: {"x": x[:, None]}, lambda x, path: x, lambda x, path: list(x),
]  # fmt: skip


@pytest.mark.parametrize("batch_size", [1, 3, 8, 100])
@pytest.mark.parametrize("form", FORMS)
def test_every_source_gives_the_same_samples(form, batch_size, x, tmp_path):
    dataset = open_dataset(form(x, tmp_path), [X])
    for _ in range(2):
        np.testing.assert_array_equal(rows(dataset, batch_size), x)
    assert dataset.data_hash == open_dataset({"x": x[::-1]}, [X]).data_hash
    if dataset.sample_count is not None:
        assert len(dataset) == 10


def test_batches_say_where_they_start(x):
    batches = list(open_dataset({"x": x}, [X]).batches(4))
    assert [(b.first_sample, b.count, len(b.inputs["x"])) for b in batches] == [
        (0, 4, 4),
        (4, 4, 4),
        (8, 2, 2),
    ]


def test_batches_go_across_records_and_are_as_long_as_asked_for(rng):
    x = rng.standard_normal((23, 3), np.float32)
    labels = np.arange(23)
    parts = [(0, 5), (5, 6), (6, 6), (6, 20), (20, 23)]
    records = [{"x": x[a:b], "labels": labels[a:b]} for a, b in parts]
    for most in (None, 0, 1, 5, 12, 22, 40):
        batches = list(open_dataset(records, [X]).batches(4, most))
        count = 23 if most is None else min(most, 23)
        assert [b.count for b in batches] == [4] * (count // 4) + [count % 4] * (count % 4 > 0)
        assert [b.first_sample for b in batches] == list(range(0, count, 4))
        if batches:
            np.testing.assert_array_equal(np.concatenate([b.inputs["x"] for b in batches]), x[:count])
            np.testing.assert_array_equal(
                np.concatenate([b.labels["labels"] for b in batches]), labels[:count]
            )


def test_rows_of_a_batch_lie_one_behind_the_other(x):
    for batch in open_dataset({"x": np.asfortranarray(x)}, [X]).batches(4):
        assert batch.inputs["x"].flags.c_contiguous


def test_max_samples_stops_reading(x):
    read = []

    class Source:
        def __iter__(self):
            for row in x:
                read.append(row)
                yield row

    batches = list(open_dataset(Source(), [X]).batches(2, 3))
    assert [b.count for b in batches] == [2, 1]
    assert len(read) == 3


def test_a_fixed_batch_is_filled_up_with_repeated_samples(x):
    batches = list(open_dataset({"x": x}, [FIXED]).batches(1))
    assert [(b.count, len(b.inputs["x"])) for b in batches] == [(4, 4), (4, 4), (2, 4)]
    np.testing.assert_array_equal(batches[2].inputs["x"], x[[8, 9, 8, 8]])


def test_ragged_samples_are_stacked_with_equal_neighbours_only(rng):
    lengths = [5, 5, 7, 5, 5, 5]
    items = [{"ids": rng.integers(0, 9, n), "mask": np.ones(n, np.int64)} for n in lengths]
    batches = list(open_dataset(items, [IDS, MASK]).batches(8))
    assert [b.inputs["ids"].shape for b in batches] == [(2, 5), (1, 7), (3, 5)]


def test_a_model_without_a_batch_axis_gets_whole_samples(rng):
    columns = {
        "input": rng.standard_normal((6, 1, 8)),
        "state": rng.standard_normal((6, 2, 1, 4)),
        "rate": 16000,
    }
    batches = list(open_dataset(columns, STATE).batches(8))
    assert [b.count for b in batches] == [1] * 6
    assert {name: array.shape for name, array in batches[3].inputs.items()} == {
        "input": (1, 8), "state": (2, 1, 4), "rate": (),
    }  # fmt: skip
    one = {name: np.asarray(array)[0] if np.ndim(array) else array for name, array in columns.items()}
    assert next(open_dataset([one], STATE).batches(8)).inputs["state"].shape == (2, 1, 4)


def test_labels_travel_with_their_samples(x, tmp_path):
    y = np.arange(10)
    np.savez(tmp_path / "d.npz", x=x, y=y)
    np.save(tmp_path / "labels.npy", y)
    for dataset in (
        open_dataset({"x": x, "targets": y}, [X]),
        open_dataset(tmp_path / "d.npz", [X]),
        open_dataset(as_npy(x, tmp_path), [X], labels=tmp_path / "labels.npy"),
        open_dataset([{"x": row, "label": label} for row, label in zip(x, y, strict=True)], [X]),
        open_dataset([{"x": x[:6], "labels": y[:6]}, {"x": x[6:], "labels": y[6:]}], [X]),
    ):
        got = np.concatenate([b.labels["labels"] for b in dataset.batches(4)])
        np.testing.assert_array_equal(got, y)


def test_labels_of_another_length_are_an_error(x):
    with pytest.raises(DataError, match="different numbers of samples"):
        open_dataset({"x": x, "labels": np.arange(9)}, [X])


def test_a_generator_can_be_read_once(x):
    dataset = open_dataset(({"x": row} for row in x), [X])
    np.testing.assert_array_equal(rows(dataset), x)
    with pytest.raises(DataError, match="a generator gives them once"):
        next(dataset.batches(1))


@pytest.mark.parametrize("dtype", [np.float64, np.float16])
def test_floats_are_cast_and_noted(dtype, x, caplog):
    caplog.set_level(logging.INFO, "quantrt")
    dataset = open_dataset({"x": x.astype(dtype)}, [X])
    np.testing.assert_array_equal(rows(dataset), x.astype(dtype).astype(np.float32))
    assert dataset.notes == (f"input 'x': {np.dtype(dtype)} data were cast to float32",)
    assert caplog.text.count("were cast") == 1


def test_whole_numbers_are_cast_where_they_fit():
    small = TensorSpec("x", "int32", ("N",))
    assert rows(open_dataset({"x": np.arange(4, dtype=np.int64)}, [small])).dtype == np.int32
    with pytest.raises(DataError, match="sample 1 .* input 'x'"):
        rows(open_dataset({"x": np.array([1, 2**40])}, [small]))


@pytest.mark.parametrize("dtype", [np.uint8, np.int64, bool, complex])
def test_other_element_types_are_an_error(dtype, x):
    with pytest.raises(DataError, match="does not fit input 'x'") as error:
        rows(open_dataset({"x": np.ones((2, 3), dtype)}, [X]))
    assert str(np.dtype(dtype)) in error.value.got
    assert ("--preprocess" in (error.value.hint or "")) == (dtype == np.uint8)


@pytest.mark.parametrize(
    ("wanted", "given", "hint"),
    [
        (("N", 3, 8, 6), (2, 8, 6, 3), "`array.transpose(0, 3, 1, 2)`: the model takes channels first"),
        (("N", 8, 6, 3), (2, 3, 8, 6), "`array.transpose(0, 2, 3, 1)`: the model takes channels last"),
        (("N", 3, 8, 6), (8, 6, 3), "`array.transpose(0, 3, 1, 2)`: the model takes channels first"),
        (("N", 3, 8, 6), (2, 8, 5, 3), None),
    ],
)
def test_pictures_with_channels_at_the_other_end_are_told_how_they_fit(wanted, given, hint):
    with pytest.raises(DataError, match="does not fit input 'x'") as error:
        rows(open_dataset({"x": np.zeros(given, np.float32)}, [TensorSpec("x", "float32", wanted)]))
    assert error.value.hint == hint


def test_files_that_are_not_read_are_told_how_they_can_be(tmp_path):
    (tmp_path / "data.parquet").write_bytes(b"PAR1")
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match="there are no samples in") as error:
        open_dataset(tmp_path / "data.parquet", [X])
    assert error.value.hint.startswith("`module:function` in its place: a function that reads it")
    with pytest.raises(DataError, match="there are no samples in") as error:
        open_dataset(tmp_path / "empty", [X])
    assert error.value.hint is None


def test_a_float64_beyond_float32_is_infinite():
    with pytest.raises(DataError, match="NaN or infinite"):
        rows(open_dataset({"x": np.full((1, 3), 1e300)}, [X]))


def test_a_wrong_name_suggests_the_nearest():
    with pytest.raises(DataError, match="no input 'id'") as error:
        open_dataset({"id": np.ones((2, 4), np.int64), "mask": np.ones((2, 4), np.int64)}, [IDS, MASK])
    assert "'ids'" in error.value.hint


def test_a_missing_input_is_named():
    with pytest.raises(DataError, match="lacks the input 'mask'"):
        open_dataset({"ids": np.ones((2, 4), np.int64)}, [IDS, MASK])


def test_inputs_that_a_tokenizer_leaves_out_are_told_how_to_get():
    types = TensorSpec("token_type_ids", "int64", ("N", "T"))
    with pytest.raises(DataError, match="lacks the input 'token_type_ids'") as error:
        open_dataset({"ids": np.ones((2, 4), np.int64)}, [IDS, types])
    assert "return_token_type_ids=True" in error.value.hint


def test_a_column_that_is_no_input_is_to_be_left_out():
    with pytest.raises(DataError, match="no input 'text'") as error:
        rows(open_dataset([{"x": np.ones((1, 3), np.float32), "text": "good"}], [X]))
    assert error.value.hint == "the same without 'text'"


@pytest.mark.parametrize("shape", [(10, 4), (10, 3, 1), (10,), (10, 3, 3, 3), ()])
def test_a_wrong_shape_is_shown_with_the_right_one(shape):
    with pytest.raises(DataError, match="input 'x'") as error:
        rows(open_dataset({"x": np.ones(shape, np.float32)}, [X]))
    assert "shape" in error.value.got
    assert "[N,3]" in error.value.expected


def test_inputs_of_different_lengths_are_an_error():
    with pytest.raises(DataError, match="different numbers of samples") as error:
        open_dataset({"ids": np.ones((3, 4), np.int64), "mask": np.ones((2, 4), np.int64)}, [IDS, MASK])
    assert "ids: 3" in error.value.got


def test_a_path_without_data_is_an_error(tmp_path):
    with pytest.raises(UsageError, match="no data at"):
        open_dataset(tmp_path / "none.npz", [X])
    with pytest.raises(DataError, match="no samples in"):
        open_dataset(tmp_path, [X])
    (tmp_path / "notes.txt").write_text("x")
    with pytest.raises(DataError, match="no samples in"):
        open_dataset(tmp_path / "notes.txt", [X])


def test_labels_that_are_not_there_are_an_error(x, tmp_path):
    with pytest.raises(DataError, match="cannot read 'filename'"):
        open_dataset(as_npy(x, tmp_path), [X], labels="filename")


@pytest.mark.parametrize("pack", [list, tuple], ids=["list", "tuple"])
def test_items_of_a_loader_have_the_inputs_in_order_and_labels_behind(pack: type, rng: np.random.Generator):
    wide, narrow = TensorSpec("wide", "float32", ("n", 3)), TensorSpec("narrow", "float32", ("n", 2))
    a, b, labels = rng.normal(size=(4, 3)).astype("f4"), rng.normal(size=(4, 2)).astype("f4"), np.arange(4)
    (one,) = open_dataset([pack((a,))], [wide]).batches(4)
    (labelled,) = open_dataset([pack((a, labels))], [wide]).batches(4)
    (two,) = open_dataset([pack((a, b, labels))], [wide, narrow]).batches(4)
    for batch in (one, labelled, two):
        np.testing.assert_array_equal(batch.inputs["wide"], a)
    np.testing.assert_array_equal(two.inputs["narrow"], b)
    for batch in (labelled, two):
        np.testing.assert_array_equal(batch.labels["labels"], labels)


def test_a_list_of_rows_is_an_array_as_before(x):
    (batch,) = open_dataset([list(x)], [X]).batches(len(x))
    np.testing.assert_array_equal(batch.inputs[X.name], x)


def test_the_length_of_an_iterable_is_not_known(x):
    with pytest.raises(TypeError, match="not known"):
        len(open_dataset(list(x), [X]))


def damaged_files(x: np.ndarray) -> dict[str, bytes]:
    def saved(save: Callable, **arrays) -> bytes:
        file = io.BytesIO()
        save(file, **arrays)
        return file.getvalue()

    npz = saved(np.savez_compressed, x=np.tile(x, (100, 1)))
    npy = io.BytesIO()
    np.save(npy, x)
    flipped = bytearray(npz)
    flipped[len(npz) // 2] ^= 0xFF
    lying = bytearray(npy.getvalue())
    lying[:] = bytes(lying).replace(b"(10, 3)", b"(99, 3)")
    return {
        "empty.npz": b"",
        "text.npz": b"no zip at all",
        "cut.npz": npz[: len(npz) // 2],
        "flipped.npz": bytes(flipped),
        "object.npz": saved(np.savez, x=np.array([{"a": 1}, None])),
        "text.npy": b"no array at all",
        "empty.npy": b"",
        "cut.npy": npy.getvalue()[:-9],
        "lying.npy": bytes(lying),
        "huge.npy": npy.getvalue().replace(b"(10, 3), }          ", b"(99999999999999, 3)}"),
    }


@pytest.mark.parametrize("name", list(damaged_files(np.zeros((10, 3), np.float32))))
def test_damaged_files_are_errors_that_name_them(name, x, tmp_path):
    path = tmp_path / name
    path.write_bytes(damaged_files(x)[name])
    with pytest.raises(DataError, match=name):
        rows(open_dataset(path, [X]))


def test_a_member_that_claims_more_than_it_holds_is_an_error(tmp_path):
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(
        header, {"descr": "<f4", "fortran_order": False, "shape": (10**6, 3)}
    )
    with zipfile.ZipFile(tmp_path / "bomb.npz", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("x.npy", header.getvalue() + bytes(1000))
    with pytest.raises(DataError, match="damaged"):
        open_dataset(tmp_path / "bomb.npz", [X])


def test_members_are_read_without_unpacking_outside(x, tmp_path):
    folder = tmp_path / "inner"
    folder.mkdir()
    file = io.BytesIO()
    np.save(file, x)
    with zipfile.ZipFile(folder / "d.npz", "w") as archive:
        archive.writestr("../../escaped.npy", file.getvalue())
    np.testing.assert_array_equal(rows(open_dataset(folder / "d.npz", [X])), x)
    assert sorted(p.name for p in tmp_path.rglob("*")) == ["d.npz", "inner"]


def test_random_samples_are_the_same_for_a_seed(x):
    specs = [TensorSpec("a", "float32", ("N", 3, "H", "W")), TensorSpec("b", "int64", ("N", "S"))]
    first = next(random_dataset(specs, 2, 1).batches(2))
    again = next(random_dataset(specs, 5, 1).batches(2))
    other = next(random_dataset(specs, 2, 2).batches(2))
    assert {name: a.shape for name, a in first.inputs.items()} == {"a": (2, 3, 224, 224), "b": (2, 128)}
    for name in ("a", "b"):
        np.testing.assert_array_equal(first.inputs[name], again.inputs[name])
        assert not np.array_equal(first.inputs[name], other.inputs[name])
    assert random_dataset(specs, 2, 1).is_random
    assert not open_dataset({"x": x}, [X]).is_random


def test_rows_that_only_pad_a_batch_are_left_out():
    layout = Layout(is_batched=True, fixed_batch=4)
    rows = np.arange(8.0).reshape(4, 2)
    assert layout.own_rows(rows, 3).shape == (3, 2) and layout.own_rows(rows, 4) is rows
    for other in (np.zeros((5, 2)), np.zeros(())):
        assert layout.own_rows(other, 3) is other, "it has no row per sample"
    assert Layout(is_batched=True).own_rows(rows, 3) is rows
