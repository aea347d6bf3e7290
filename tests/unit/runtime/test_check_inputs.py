# SPDX-License-Identifier: Apache-2.0
"""A wrong input is named, with what would have been right."""

from types import MappingProxyType

import ml_dtypes
import numpy as np
import pytest

from quantrt.errors import DataError
from quantrt.ir.tensor_spec import TensorSpec
from quantrt.runtime import check_inputs
from quantrt.runtime.check_inputs import InputCheck

SPECS = (
    TensorSpec("images", "float32", ("N", 3, None)),
    TensorSpec("lengths", "int64", ("N",)),
)


def good(batch: int = 2, width: int = 5) -> dict[str, object]:
    return {"images": np.zeros((batch, 3, width), np.float32), "lengths": np.zeros(batch, np.int64)}


def refuse(changes: dict[str, object], specs: tuple[TensorSpec, ...] = SPECS) -> DataError:
    """The error for good inputs with `changes`; None removes an input."""
    inputs = {name: value for name, value in {**good(), **changes}.items() if value is not None}
    with pytest.raises(DataError) as caught:
        InputCheck(specs).check(inputs)
    return caught.value


def test_right_inputs_come_back_as_they_are_in_the_engines_order():
    inputs = dict(reversed(good().items()))
    arrays = InputCheck(SPECS).check(inputs)
    assert list(arrays) == ["images", "lengths"]
    assert all(arrays[name] is inputs[name] for name in arrays)


def test_any_mapping_and_any_batch_are_accepted():
    check = InputCheck(SPECS)
    for batch in (1, 7, 0, 1):
        assert check.check(MappingProxyType(good(batch)))["lengths"].shape == (batch,)


def test_an_unknown_name_gets_the_close_match():
    error = refuse({"images": None, "imgaes": np.zeros((2, 3, 5), np.float32)})
    assert "'imgaes'" in error.message
    assert error.hint == "'images'"


def test_an_extra_input_is_an_error():
    error = refuse({"more": np.zeros(1)})
    assert "'more'" in error.message
    assert "images float32 [N,3,?]" in error.expected


def test_a_missing_input_is_named():
    error = refuse({"lengths": None})
    assert "'lengths' was not given" in error.message
    assert error.got == "images"


@pytest.mark.parametrize(
    ("given", "hint"),
    [
        (np.zeros((2, 3, 5)), "`.astype(np.float32)`"),
        (np.zeros((2, 3, 5), np.float16), "`.astype(np.float32)`"),
        (np.zeros((2, 3, 5), np.int32), "`.astype(np.float32)`"),
        (np.zeros((2, 3, 5), ">f4"), "`.astype(np.float32)`"),
    ],
)
def test_a_wrong_element_type_is_never_cast(given: np.ndarray, hint: str):
    error = refuse({"images": given})
    assert "'images'" in error.message
    assert (error.expected, error.hint) == ("float32", hint)


def test_int32_for_int64_is_refused_too():
    assert refuse({"lengths": np.zeros(2, np.int32)}).hint == "`.astype(np.int64)`"


@pytest.mark.parametrize(
    ("shape", "reason"),
    [
        ((2, 3), "2 dimensions instead of 3"),
        ((2, 4, 5), "4 instead of 3 on axis 1"),
        ((3, 3, 5), "N is 2 here and 3 in 'images'"),
    ],
)
def test_a_wrong_shape_says_where(shape: tuple[int, ...], reason: str):
    error = refuse({"images": np.zeros(shape, np.float32)})
    assert reason in error.message
    assert "[" in error.got


def test_a_wrong_shape_is_refused_every_time():
    check = InputCheck(SPECS)
    check.check(good())
    for _ in range(2):
        with pytest.raises(DataError):
            check.check(good() | {"lengths": np.zeros(3, np.int64)})


def test_shapes_are_forgotten_before_they_fill_the_memory(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(check_inputs, "REMEMBERED_SHAPES", 4)
    check = InputCheck(SPECS)
    for batch in range(20):
        check.check(good(batch))
        assert len(check._accepted) <= 4


def test_unknown_rank_takes_any_shape():
    check = InputCheck((TensorSpec("x", "float32", None),))
    for shape in ((), (3,), (1, 2, 3)):
        assert check.check({"x": np.zeros(shape, np.float32)})["x"].shape == shape


@pytest.mark.parametrize("given", [[1.0, 2.0], 3, "text", None, {"a": 1}])
def test_what_is_no_array_is_refused(given: object):
    with pytest.raises(DataError, match="'x'") as caught:
        InputCheck((TensorSpec("x", "float32", None),)).check({"x": given})
    assert type(given).__name__ == caught.value.got


@pytest.mark.parametrize("given", [np.zeros((2, 3, 5), np.float32), [1], None])
def test_inputs_that_are_no_mapping_are_refused(given: object):
    with pytest.raises(DataError) as caught:
        InputCheck(SPECS).check(given)
    assert caught.value.hint == "run({'images': ..., 'lengths': ...})"


class Tensor:
    """Speaks DLPack as other libraries do; `error` stands for a tensor on a GPU or with a gradient."""

    def __init__(self, array: np.ndarray, error: Exception | None = None) -> None:
        self._array = array
        self._error = error

    def __dlpack__(self, **options: object) -> object:
        if self._error is not None:
            raise self._error
        return self._array.__dlpack__(**options)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self._array.__dlpack_device__()


def test_a_dlpack_tensor_is_shared():
    array = np.arange(30, dtype=np.float32).reshape(2, 3, 5)
    arrays = InputCheck(SPECS).check(good() | {"images": Tensor(array)})
    assert np.shares_memory(arrays["images"], array)


@pytest.mark.parametrize("error", [BufferError("requires grad"), RuntimeError("on cuda:0"), TypeError("")])
def test_a_tensor_that_cannot_be_shared_says_why(error: Exception):
    got = refuse({"images": Tensor(np.zeros((2, 3, 5), np.float32), error)})
    assert got.hint == "`.detach().cpu()`"
    assert got.got == (str(error) or "TypeError")


def test_numpy_scalars_and_subclasses_are_arrays(tmp_path):
    assert InputCheck((TensorSpec("s", "float32", ()),)).check({"s": np.float32(2.0)})["s"].shape == ()
    mapped = np.memmap(tmp_path / "x", np.float32, "w+", shape=(2, 3, 5))
    arrays = InputCheck(SPECS).check(good() | {"images": mapped})
    assert type(arrays["images"]) is np.ndarray
    assert np.shares_memory(arrays["images"], mapped)


def test_text_may_have_any_of_numpys_text_types():
    check = InputCheck((TensorSpec("t", "string", ("N",)),))
    for array in (np.array(["a"]), np.array([b"a"]), np.array(["a"], object)):
        assert check.check({"t": array})["t"] is array
    with pytest.raises(DataError, match="element type"):
        check.check({"t": np.zeros(1, np.float32)})


def test_bfloat16_is_told_apart():
    check = InputCheck((TensorSpec("x", "bfloat16", (1,)),))
    check.check({"x": np.zeros(1, ml_dtypes.bfloat16)})
    with pytest.raises(DataError) as caught:
        check.check({"x": np.zeros(1, np.float32)})
    assert caught.value.hint == "`.astype(ml_dtypes.bfloat16)`"
