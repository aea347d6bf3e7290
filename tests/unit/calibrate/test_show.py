# SPDX-License-Identifier: Apache-2.0
"""Statistics show themselves in one line, and as a table that stays short."""

import numpy as np
from rich.console import Console

from quantrt.calibrate.show import FIRST
from quantrt.calibrate.stats import Stats, TensorStats
from quantrt.model.model import Fingerprint


def stats_of(count: int, **fields: bool) -> Stats:
    tensor = TensorStats.from_values(np.linspace(-1.5, 2.0, 1234, dtype=np.float32))
    tensors = {f"<t{i}>": tensor for i in range(count)}
    return Stats(tensors, 8, "0" * 64, Fingerprint("a" * 64, "b" * 64), **fields)


def text_of(stats: Stats) -> str:
    console = Console(width=80, force_terminal=False)
    with console.capture() as capture:
        console.print(stats)
    return capture.get()


def test_one_line():
    assert repr(stats_of(3)) == "<Stats of 3 tensors over 8 samples, graph aaaaaaaaaaaa>"
    assert "random samples, which mean nothing" in repr(stats_of(1, is_random=True))


def test_a_table_of_the_first_tensors():
    html, text = stats_of(FIRST + 7)._repr_html_(), text_of(stats_of(FIRST + 7))
    assert html.count("<tr>") == 1 + FIRST + 1
    assert "&lt;t0&gt;" in html and "<t0>" not in html and "and 7 more" in html
    assert ["<t0>", "1,234", "-1.5", "2"] in [line.split() for line in text.splitlines()]
    assert "and 7 more" in text and "more" not in stats_of(FIRST)._repr_html_()


def test_stats_with_other_notes_are_still_equal():
    assert stats_of(2) == stats_of(2)
