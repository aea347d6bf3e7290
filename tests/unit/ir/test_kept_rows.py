# SPDX-License-Identifier: Apache-2.0
"""Rows that are kept beside a timing cache."""

import subprocess
import sys
from pathlib import Path

import pytest

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
def test_a_damaged_file_is_named_and_made_anew(text: str, tmp_path: Path, caplog: pytest.LogCaptureFixture):
    path = tmp_path / "t.json.rows"
    path.write_text(text)
    with caplog.at_level("WARNING", logger="quantrt.ir.kept_file"):
        assert rows(path).load() == {}
    assert f"'{path}' is damaged, not used, and made anew" in caplog.text
    rows(path).add("a", 1)
    assert rows(path).load() == {"a": 1.0}


def test_a_file_that_cannot_be_written_is_named(tmp_path: Path, caplog: pytest.LogCaptureFixture):
    with caplog.at_level("WARNING", logger="quantrt.ir.kept_file"):
        rows(tmp_path / "gone" / "t.json.rows").add("a", 1)
    path = tmp_path / "gone" / "t.json.rows"
    assert f"cannot write '{path}' (No such file or directory): later builds do without" in caplog.text


ADD_ROWS = """
import sys
from pathlib import Path
from quantrt.ir.kept_rows import KeptRows
name = sys.argv[2]
for number in range(20):
    KeptRows(Path(sys.argv[1]), "rows of a test", "found", float).add(f"{name}{number}", number)
"""


def test_rows_that_several_builds_add_at_once_are_all_kept(tmp_path: Path):
    path = tmp_path / "t.json.rows"
    builds = [subprocess.Popen([sys.executable, "-c", ADD_ROWS, str(path), name]) for name in "abc"]
    assert [build.wait() for build in builds] == [0, 0, 0]
    assert rows(path).load() == {f"{name}{number}": number for name in "abc" for number in range(20)}
    assert [item.name for item in tmp_path.iterdir()] == ["t.json.rows"], "no lock is left behind"


def test_digests_do_not_depend_on_the_order_of_names():
    assert digest_of({"a": 1, "b": [2]}) == digest_of({"b": [2], "a": 1})
    assert digest_of([1, 2]) != digest_of([2, 1])
