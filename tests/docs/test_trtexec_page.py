# SPDX-License-Identifier: Apache-2.0
"""The table of docs/trtexec.md is what the flags say, and the parser takes every one of them."""

from pathlib import Path

import pytest

from quantrt.errors import UsageError
from quantrt.trtexec.flags.flag import ALL, Effect, Flag, Form
from quantrt.trtexec.flags.flags import FLAGS
from quantrt.trtexec.flags.parse import read_words
from quantrt.trtexec.page import with_flags

PAGE = Path(__file__).resolve().parents[2] / "docs" / "trtexec.md"

VALUES = {
    Form.TEXT: "text",
    Form.FILE: "file",
    Form.FOLDER: "folder",
    Form.WHOLE: "1",
    Form.NUMBER: "0.5",
    Form.SHAPES: "image:1x3x224x224",
    Form.FILES: "image:file",
    Form.LAYERS: "conv1:fp32",
    Form.SIGNED: "+CUDNN",
    Form.POOLS: "workspace:1G",
    Form.IO_FORMATS: "fp32:chw",
    Form.PERCENTS: "50,99",
}


def test_the_page_is_current():
    page = PAGE.read_text(encoding="utf-8")
    assert page == with_flags(page), "python -m quantrt.trtexec.page docs/trtexec.md"


def test_a_page_without_the_section():
    with pytest.raises(UsageError, match="no section for the flags"):
        with_flags("# trtexec\n")


@pytest.mark.parametrize("flag", FLAGS, ids=lambda flag: flag.name)
def test_the_parser_takes_or_refuses_what_the_table_says(flag: Flag):
    word = flag.name
    if flag.form is not Form.SWITCH:
        word += f"={flag.choices[0] if flag.choices else VALUES[flag.form]}"
    if flag.effect is Effect.REFUSED:
        with pytest.raises(UsageError, match=r"cannot be done: ") as caught:
            read_words([word])
        assert flag.text in str(caught.value)
    else:
        (found,) = read_words([word]).items
        assert found[0].name == (flag.same_as or flag.name)


def test_no_flag_stands_twice_and_other_names_lead_to_flags_of_the_same_kind():
    names = [flag.name for flag in FLAGS]
    assert len(set(names)) == len(names)
    by_name = {flag.name: flag for flag in FLAGS}
    for flag in FLAGS:
        if flag.same_as is not None:
            target = by_name[flag.same_as]
            assert target.same_as is None
            assert (target.form, target.effect) == (flag.form, flag.effect)


def test_as_many_flags_as_each_trtexec_has():
    """In samples/common/sampleOptions.cpp at release/8.6, release/10.16 and main, -h and -v not counted."""
    names = [flag for flag in FLAGS if flag.name.startswith("--")]
    assert [sum(version in flag.versions for flag in names) for version in ALL] == [105, 127, 131]
