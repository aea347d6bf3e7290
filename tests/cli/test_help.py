# SPDX-License-Identifier: Apache-2.0
"""Help texts: they exist, fit a terminal, and their examples are commands that parse."""

import shlex

import pytest

from quantrt.cli.command import Command
from quantrt.cli.main import COMMANDS, main
from quantrt.cli.parser import parse

VERBS = [command.name for command in COMMANDS]
EXAMPLES = [
    pytest.param(command, line, id=f"{command.name}-{number}")
    for command in COMMANDS
    for number, (_, line) in enumerate(command.examples)
]


@pytest.mark.parametrize("words", [["-h"], *([verb, "-h"] for verb in VERBS)], ids=["quantrt", *VERBS])
def test_help_of_every_verb(words: list[str], capsys: pytest.CaptureFixture[str]):
    assert main(words) == 0
    out, err = capsys.readouterr()
    assert err == ""
    assert "examples:" in out
    assert max(len(line) for line in out.splitlines()) <= 110
    for flag in ("--json", "--traceback", "--verbose", "--quiet"):
        assert flag in out


def test_the_overview_lists_every_verb(capsys: pytest.CaptureFixture[str]):
    main(["-h"])
    out = capsys.readouterr().out
    for command in COMMANDS:
        assert command.name in out
        assert command.summary in out


def test_verbs_are_the_documented_ones():
    first, second = (
        "build calibrate quantize run bench compare inspect explain",
        "tune pareto report trtexec check doctor completion",
    )
    assert VERBS == [*first.split(), *second.split()]


@pytest.mark.parametrize(("command", "line"), EXAMPLES)
def test_examples_parse(command: Command, line: str):
    if line.startswith("eval"):
        line = line.removeprefix('eval "$(').removesuffix(')"')
    words = shlex.split(line.partition(" > ")[0])
    assert words[0] == "quantrt"
    assert parse(COMMANDS, words[1:]).command is command


def test_version(capsys: pytest.CaptureFixture[str]):
    import quantrt

    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"quantrt {quantrt.__version__}\n"


def test_no_default_is_hidden_in_a_parser():
    """Options of a config class are None when not given, so that defaults live in one file."""
    args = parse(COMMANDS, ["build", "m.onnx", "-o", "m.qrt"])
    for name in ("method", "max_samples", "exclude", "threads", "metric", "max_drop_ratio", "duration_s"):
        assert getattr(args, name) is None
