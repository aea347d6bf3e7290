# SPDX-License-Identifier: Apache-2.0
"""Rows that are kept beside a timing cache."""

from pathlib import Path

import pytest

from quantrt.errors import DataError, DeviceError
from quantrt.ir.kept_rows import KeptRows, digest_of


def rows(path: Path, form: str = "rows of a test") -> KeptRows[float]:
    return KeptRows(path, form, "found", float)


def test_rows_are_added_to_those_of_earlier_builds(tmp_path: Path):
    path = tmp_path / "t.json.rows"
    assert rows(path).load() == {}
    rows(path).add("b", "2.5")
    rows(path).add("a", 1)
    assert rows(path).load() == {"a": 1.0, "b": 2.5}
    rows(path).add("b", 3)
    assert rows(path).load() == {"a": 1.0, "b": 3.0}


def test_rows_of_another_format_are_none(tmp_path: Path):
    path = tmp_path / "t.json.rows"
    rows(path, "of another").add("a", 1)
    assert rows(path).load() == {}


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"format": "rows of a test", "found": [1]}', '{"found": {"a": "one"}}']
)
def test_a_damaged_file_is_named_and_stays(text: str, tmp_path: Path):
    path = tmp_path / "t.json.rows"
    path.write_text(text)
    for use in (rows(path).load, lambda: rows(path).add("a", 1)):
        with pytest.raises(DataError, match=r"t\.json\.rows"):
            use()
    assert path.read_text() == text


def test_a_file_that_cannot_be_written_is_named(tmp_path: Path):
    with pytest.raises(DeviceError, match=r"t\.json\.rows"):
        rows(tmp_path / "gone" / "t.json.rows").add("a", 1)


def test_digests_do_not_depend_on_the_order_of_names():
    assert digest_of({"a": 1, "b": [2]}) == digest_of({"b": [2], "a": 1})
    assert digest_of([1, 2]) != digest_of([2, 1])
