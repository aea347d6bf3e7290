# SPDX-License-Identifier: Apache-2.0
import os
from pathlib import Path

from quantrt.cli.write import write_text


def test_a_name_that_is_no_text_is_escaped(tmp_path: Path):
    write_text(tmp_path / "page.html", f"<h1>{os.fsdecode(b'm' + bytes([255]))}.onnx</h1>")
    assert (tmp_path / "page.html").read_bytes() == rb"<h1>m\udcff.onnx</h1>"
