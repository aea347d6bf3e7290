# SPDX-License-Identifier: Apache-2.0
"""The page says the tolerances that are used."""

import re
from pathlib import Path

from quantrt.report.layer_errors.three_way import PATH_TOLERANCES

PAGE = Path(__file__).resolve().parents[4] / "docs" / "compare.md"


def test_the_page_has_every_tolerance():
    rows = re.findall(r"^\| (fp32|fp16|bf16) \| ([\d.]+) \|$", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    assert {name: float(ratio) for name, ratio in rows} == PATH_TOLERANCES
