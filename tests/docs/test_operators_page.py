# SPDX-License-Identifier: Apache-2.0
"""docs/operators.md is what the operator table says."""

from pathlib import Path

import pytest

pytest.importorskip("torch", reason="the operator table needs torch")

from quantrt.operators.page import operators_page

PAGE = Path(__file__).resolve().parents[2] / "docs" / "operators.md"


def test_the_page_is_current():
    assert PAGE.read_text(encoding="utf-8") == operators_page(), (
        "python -m quantrt.operators.page > docs/operators.md"
    )
