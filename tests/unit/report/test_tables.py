# SPDX-License-Identifier: Apache-2.0
"""Tables fit 100 columns, keep every character of a name, and are plain in a pipe."""

import pytest

from quantrt.report.tables import MAX_COLUMNS, facts, heading, show, table, verdict

LONG = "/backbone/stage4/block17/attention/qkv/" + "MatMul_output_0" * 4


def test_a_wide_table_is_folded_not_cut(capsys: pytest.CaptureFixture[str]):
    rows = [(LONG, "fp32", "0.123456", "41.2"), ("short", "int8", "1", "9")]
    show(table(("layer", "precision", "max abs", "SQNR dB"), rows, left=("precision",), fold=("layer",)))
    out = capsys.readouterr().out
    lines = out.splitlines()
    assert max(map(len, lines)) <= MAX_COLUMNS
    assert "…" not in out
    name = "".join(line.split("  ")[0].strip() for line in lines[2:-1])
    assert name == LONG
    assert "0.123456" in out


def test_numbers_are_right_aligned(capsys: pytest.CaptureFixture[str]):
    show(table(("name", "ms"), [("a", "1"), ("b", "1000")], left=("name",)))
    lines = capsys.readouterr().out.splitlines()
    assert lines[-2].endswith("   1")
    assert lines[-1].endswith("1000")


def test_text_with_brackets_is_not_markup(capsys: pytest.CaptureFixture[str]):
    show(table(("name",), [("[bold]x[/bold]",)]), facts([("input", "image float32 [N,3,224,224]")]))
    out = capsys.readouterr().out
    assert "[bold]x[/bold]" in out
    assert "[N,3,224,224]" in out


@pytest.mark.parametrize(("passed", "word"), [(True, "PASSED"), (False, "FAILED")])
def test_a_pipe_gets_plain_text(passed: bool, word: str, capsys: pytest.CaptureFixture[str]):
    show(heading("title"), verdict(passed, "all limits hold"))
    assert capsys.readouterr().out == f"title\n{word} all limits hold\n"


def test_no_trailing_spaces(capsys: pytest.CaptureFixture[str]):
    show(facts([("a", "1"), ("long name", "2")]), table(("x", "y"), [("1", "")], left=("x", "y")))
    assert all(line == line.rstrip() for line in capsys.readouterr().out.splitlines())
