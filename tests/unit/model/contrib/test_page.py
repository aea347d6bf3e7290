# SPDX-License-Identifier: Apache-2.0
"""The page of operators names all that are spelled."""

from pathlib import Path

from quantrt.model.contrib import codes
from quantrt.model.passes.spell import spell_contrib

PAGE = Path(__file__).parents[4] / "docs" / "operators.md"


def test_every_spelling_is_on_the_page():
    tail = PAGE.read_text("utf-8").split("## Operators of ONNX Runtime's own")[1]
    named = {word.strip(",|:;") for word in tail.split()}
    spelled = {*codes._SPELLINGS, *spell_contrib._SPELLINGS, *spell_contrib._IN_DEFAULT_DOMAIN}
    assert spelled - named == set()
