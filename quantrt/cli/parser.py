# SPDX-License-Identifier: Apache-2.0
"""The argument parser: every verb in one tree, and mistakes answered with the nearest correct word."""

from __future__ import annotations

import argparse
import re
import textwrap
from collections.abc import Sequence
from typing import NoReturn

import quantrt
from quantrt.cli.command import Command
from quantrt.errors import UsageError, close_match
from quantrt.trtexec.flags.flags import BY_NAME

__all__ = ["make_parser", "parse", "verb_parsers"]

_DESCRIPTION = "From an ONNX model to a verified quantized inference engine."
_EPILOG = """examples:
  quantrt build model.onnx --int8 --calib-data calib.npz --valid-data valid.npz -o model.qrt
  quantrt bench model.qrt model.onnx
  quantrt doctor

`quantrt COMMAND -h` shows the options and examples of one command.
Exit codes: 0 done, 1 a check failed, 2 usage, 3 model or data, 4 device or disk, 70 a bug."""

_WIDTH = 98

_BAD_CHOICE = re.compile(
    r"argument (?:-\w/)?(?P<option>--[\w-]+): "
    r"invalid choice: '(?P<word>[^']*)' \(choose from (?P<choices>.*)\)"
)

_PERCENT = re.compile(r"argument (?P<option>--max-drop): invalid float value: '(?P<percent>[\d.]+) ?%'")

DATA_OPTIONS = ("data", "inputs", "calib-data")
"""What data come by, in one command or another; in each the first that it has is meant."""

_CAPITAL = re.compile(r"(?<=[a-z0-9])([A-Z])")

_NEGATIVE_NUMBER = re.compile(r"-\.?\d")


class _Parser(argparse.ArgumentParser):
    """An ArgumentParser whose errors are UsageErrors."""

    def error(self, message: str) -> NoReturn:
        """Raise instead of printing and leaving."""
        raise UsageError(
            f"cannot read the command line: {message}",
            hint=_nearest_choice(message) or _as_ratio(message) or f"{self.prog} -h",
        )


def _nearest_choice(message: str) -> str | None:
    """The option with the word that comes nearest to the one that argparse refused; None for other errors."""
    found = _BAD_CHOICE.search(message)
    if found is None:
        return None
    near = close_match(found["word"], re.findall(r"'([^']+)'", found["choices"]))
    return None if near is None else f"{found['option']} {near}"


def _as_ratio(message: str) -> str | None:
    """The option with the ratio that a percentage is; None for other errors."""
    found = _PERCENT.search(message)
    return None if found is None else f"{found['option']} {float(found['percent']) / 100:g}"


def make_parser(commands: Sequence[Command]) -> argparse.ArgumentParser:
    """The parser of the whole command line; in `args` it is `parser`, and the chosen Command is `command`."""
    parser = _Parser(
        prog="quantrt",
        description=_DESCRIPTION,
        epilog=_EPILOG,
        formatter_class=_help_formatter,
        allow_abbrev=False,
    )
    parser.set_defaults(parser=parser)
    parser.add_argument("--version", action="version", version=f"quantrt {quantrt.__version__}")
    _add_output_options(parser, default=False)
    verbs = parser.add_subparsers(metavar="COMMAND", title="commands", parser_class=_Parser)
    for command in commands:
        verb = verbs.add_parser(
            command.name,
            help=command.summary,
            description=textwrap.fill(command.details, _WIDTH),
            epilog="examples:\n" + "\n".join(_example_text(*example) for example in command.examples),
            formatter_class=_help_formatter,
            allow_abbrev=False,
        )
        verb.set_defaults(command=command)
        command.add_arguments(verb)
        # A flag before the verb must survive the verb's own defaults.
        _add_output_options(verb, default=argparse.SUPPRESS)
    return parser


def parse(commands: Sequence[Command], argv: Sequence[str]) -> argparse.Namespace:
    """The arguments of one command line.

    Raises:
        UsageError: an unknown command or option (names the nearest), a missing or malformed value.
    """
    parser = make_parser(commands)
    verbs = verb_parsers(parser)
    position = next((i for i, word in enumerate(argv) if not word.startswith("-")), len(argv))
    _check_flags(parser, argv[:position])
    if position < len(argv):
        _check_verb(argv[position], verbs)
        command = verbs[argv[position]].get_default("command")
        words = argv[position + 1 :]
        if command.reads_words and not {"-h", "--help"} & set(words):
            return _unread(parser.parse_args(argv[:position]), command, words)
        _check_flags(verbs[argv[position]], words)
    args = parser.parse_args(argv)
    if not hasattr(args, "command"):
        raise UsageError("no command was given", expected="one of " + ", ".join(verbs), hint="quantrt -h")
    return args


def _unread(args: argparse.Namespace, command: Command, words: Sequence[str]) -> argparse.Namespace:
    """The arguments of a command that reads its words itself; the switches of every verb are looked up."""
    switches = {"json": ("--json",), "traceback": ("--traceback",), "verbose": ("-v", "--verbose")}
    for name, flags in {**switches, "quiet": ("-q", "--quiet")}.items():
        setattr(args, name, getattr(args, name) or any(flag in words for flag in flags))
    args.command, args.words = command, tuple(words)
    return args


def verb_parsers(parser: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    """The parser of each verb, by name."""
    # argparse has no public way to the subparsers of a parser.
    actions = [action for action in parser._actions if isinstance(action, argparse._SubParsersAction)]
    return dict(actions[0].choices)


def _add_output_options(parser: argparse.ArgumentParser, *, default: object) -> None:
    group = parser.add_argument_group("output")
    switches = (
        ("--json", "one JSON document on stdout in place of the text, also for an error"),
        ("--traceback", "show where in the code an error came from"),
        ("-v", "log each node, not only each stage"),
        ("-q", "log warnings only, show no progress"),
    )
    names = {"-v": "--verbose", "-q": "--quiet"}
    for flag, text in switches:
        flags = (flag, names[flag]) if flag in names else (flag,)
        group.add_argument(*flags, action="store_true", default=default, help=text)


def _check_verb(word: str, verbs: dict[str, argparse.ArgumentParser]) -> None:
    if word not in verbs:
        near = close_match(word, verbs)
        raise UsageError(
            f"unknown command '{word}'",
            expected="one of " + ", ".join(verbs),
            hint=f"quantrt {near}" if near else "quantrt -h",
        )


def _check_flags(parser: argparse.ArgumentParser, words: Sequence[str]) -> None:
    """Find an unknown flag before argparse complains about what is missing because of it."""
    known = [flag for action in parser._actions for flag in action.option_strings]
    for word in words:
        if word == "--":
            return
        if not _is_flag(word):
            continue
        flag = word.split("=", 1)[0]
        if flag in known or (not word.startswith("--") and word[:2] in known):
            continue
        raise UsageError(f"unknown option '{flag}' of {parser.prog}", hint=_instead(parser.prog, flag, known))


def _instead(prog: str, flag: str, known: Sequence[str]) -> str:
    """The option that is meant: the nearest one, of trtexec's flags the one of their name."""
    names = [name[2:] for name in known if name.startswith("--")]  # dashes are alike in all
    if flag in BY_NAME:
        name = _CAPITAL.sub(r"-\1", flag[2:]).lower()
        same = next((known for known in names if name.startswith(known) or known.startswith(name)), None)
        return f"--{same}" if same else f"quantrt trtexec {flag}, which takes trtexec's flags, or {prog} -h"
    if flag[2:] in DATA_OPTIONS:
        return next((f"--{name}" for name in DATA_OPTIONS if name in names), f"{prog} -h")
    near = close_match(flag[2:], names) if flag.startswith("--") else None
    return f"--{near}" if near else f"{prog} -h"


def _is_flag(word: str) -> bool:
    """Whether argparse takes the word for an option: by its rules, text with a space is a value."""
    return len(word) > 1 and word[0] == "-" and " " not in word and not _NEGATIVE_NUMBER.match(word)


def _help_formatter(prog: str) -> argparse.HelpFormatter:
    return argparse.RawDescriptionHelpFormatter(prog, width=_WIDTH, max_help_position=32)


def _example_text(what: str, line: str) -> str:
    """A comment and a command; a long command continues on further lines, each beginning with an option."""
    lines = [""]
    for part in re.split(r" (?=-)", line):
        if len(lines[-1]) + len(part) > _WIDTH - 8:
            lines.append("")
        lines[-1] += f" {part}" if lines[-1] else part
    return f"  # {what}\n  " + " \\\n      ".join(lines)
