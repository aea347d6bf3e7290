# SPDX-License-Identifier: Apache-2.0
"""The command to run next after a failure whose error names none.

What an error has to try is often a name alone: the nearest one to a misspelt one. Then it is the command that
failed, with that name in it; where that cannot be told, what shows more of the cause stands behind it.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path

from quantrt.errors import DeviceError, InternalError, ModelError, QuantRtError, UsageError, close_match
from quantrt.ir.missing_file import nearest_file

__all__ = ["names_command", "next_command", "with_command"]

MODELS = (".onnx", ".qrt")
OUTPUT = ("-o", "--output", "--saveEngine")
"""Options whose value is a file that the command would have made."""

INSPECT = "inspect"

_COMMAND = re.compile(r"(?:^|[\s`'(])(?:quantrt|pip|python|mkdir) |(?:^|[\s`'(])--?[A-Za-z]|\w=\S|`[^`]+`")
"""A command, an option, an assignment, or code."""

_QUOTED = re.compile(r"'([^']+)'")


def next_command(error: QuantRtError, argv: Sequence[str], verbs: Sequence[str]) -> str:
    """What shows more of the cause: the options of a verb, the model, the machine, or the code.

    Args:
        argv: the words of the command line that failed.
        verbs: names of all commands.
    """
    verb = next((word for word in argv if word in verbs), None)
    if isinstance(error, UsageError):
        return f"quantrt {verb} -h" if verb else "quantrt -h"
    if isinstance(error, DeviceError):
        return "quantrt doctor" if verb != "doctor" else _with_traceback(argv)
    if isinstance(error, ModelError):  # DataError too: a model's inputs say what data it takes
        model = next(_read_models(argv), None)
        if model is None or verb is None:
            return f"quantrt {verb} -h" if verb else "quantrt -h"
        return _with_traceback(argv) if verb == INSPECT else f"quantrt {INSPECT} {shlex.quote(model)}"
    if isinstance(error, InternalError):
        return f"{_with_traceback(argv)}, and report what it prints"
    return f"quantrt {verb} -h" if verb else "quantrt -h"


def with_command(error: QuantRtError, argv: Sequence[str], verbs: Sequence[str]) -> str:
    """The error's own hint, and behind it a command where it names none."""
    hint = _not_an_output(error.message, error.hint or "", argv)
    if names_command(hint):
        return hint
    corrected = _corrected(error.message, hint, argv)
    if corrected is not None:
        return f"{hint}: {corrected}"
    return f"{hint}; next: {next_command(error, argv, verbs)}"


def _not_an_output(message: str, hint: str, argv: Sequence[str]) -> str:
    """The hint; where it is the file that the command writes, what else comes near the missing one."""
    near = _QUOTED.fullmatch(hint)
    outputs = {_value(word) for before, word in pairwise(("", *argv)) if _is_output(before, word)}
    missing = close_match(near[1], _QUOTED.findall(message)) if near and near[1] in outputs else None
    if missing is None:
        return hint
    return nearest_file(Path(missing), Path(missing).suffix, besides=outputs)


def names_command(hint: str) -> bool:
    """Whether a hint can be typed: it has a command, an option, an assignment or code in it."""
    return _COMMAND.search(hint) is not None


def _corrected(message: str, hint: str, argv: Sequence[str]) -> str | None:
    """The command line with the name that the hint is in place of the one like it that the message quotes."""
    near = _QUOTED.fullmatch(hint)
    wrong = close_match(near[1], _QUOTED.findall(message)) if near else None
    if near is None or wrong is None:
        return None
    pattern = re.compile(rf"(?<![\w.-]){re.escape(wrong)}(?![\w.-])")
    places = [place for place, word in enumerate(argv) if pattern.search(word)]
    if len(places) != 1:
        return None
    words = list(argv)
    words[places[0]] = pattern.sub(lambda found: near[1], words[places[0]])
    return shlex.join(["quantrt", *words])


def _read_models(argv: Sequence[str]) -> Iterator[str]:
    """Models and engines among the words that are not what the command was to write."""
    for before, word in pairwise(("", *argv)):
        if word.endswith(MODELS) and not _is_output(before, word):
            yield _value(word)


def _is_output(before: str, word: str) -> bool:
    """Whether a word, or what is behind the = in it, is what the command was to write."""
    return before in OUTPUT or word.partition("=")[0] in OUTPUT


def _value(word: str) -> str:
    """What a word names, behind the flag that it is the value of: `--onnx=model.onnx`."""
    return word.partition("=")[2] if word.startswith("-") else word


def _with_traceback(argv: Sequence[str]) -> str:
    """The same command, with the place in the code that the error came from."""
    words = [word for word in argv if word != "--traceback"]
    return shlex.join(["quantrt", *words, "--traceback"])
