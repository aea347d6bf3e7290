# SPDX-License-Identifier: Apache-2.0
"""The command to run next after a failure whose error names none."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from quantrt.errors import DeviceError, InternalError, ModelError, QuantRtError, UsageError

__all__ = ["next_command"]

MODELS = (".onnx", ".qrt")
INSPECT = "inspect"


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
        model = next((_value(word) for word in argv if word.endswith(MODELS)), None)
        if model is None or verb is None:
            return f"quantrt {verb} -h" if verb else "quantrt -h"
        return _with_traceback(argv) if verb == INSPECT else f"quantrt {INSPECT} {shlex.quote(model)}"
    if isinstance(error, InternalError):
        return f"{_with_traceback(argv)}, and report what it prints"
    return f"quantrt {verb} -h" if verb else "quantrt -h"


def _value(word: str) -> str:
    """What a word names, behind the flag that it is the value of: `--onnx=model.onnx`."""
    return word.partition("=")[2] if word.startswith("-") else word


def _with_traceback(argv: Sequence[str]) -> str:
    """The same command, with the place in the code that the error came from."""
    words = [word for word in argv if word != "--traceback"]
    return shlex.join(["quantrt", *words, "--traceback"])
