# SPDX-License-Identifier: Apache-2.0
"""Tables for notebooks escape their texts; those for terminals say the same."""

from rich.console import Console

from quantrt.notebook import facts_html, rich_table, table_html


def test_every_text_is_escaped():
    table = table_html("<a>", ["<b>", "<c>"], [["<d>", "1 & 2"]])
    assert table.startswith("<table><caption>&lt;a&gt;</caption>")
    assert "<td>&lt;d&gt;</td>" in table and ">1 &amp; 2</td>" in table
    assert facts_html("<a>", [("<b>", "x\n<y>")]) == (
        "<table><caption>&lt;a&gt;</caption><tr><th>&lt;b&gt;</th><td>x<br>&lt;y&gt;</td></tr></table>"
    )


def test_numbers_stand_to_the_right():
    table = table_html("", ["name", "ms"], [["a", "1"]])
    assert table.count('style="text-align:right"') == 2


def test_a_terminal_gets_the_same_without_markup():
    console = Console(width=60, force_terminal=False)
    with console.capture() as capture:
        console.print(rich_table("[red]title", ["name", "[bold]ms"], [["[dim]a", "1"]]))
    assert [line.split() for line in capture.get().splitlines() if "a" in line][-1] == ["[dim]a", "1"]
    assert "[red]title" in capture.get() and "[bold]ms" in capture.get()
