# SPDX-License-Identifier: Apache-2.0
"""Functions of the user, named `module:function`; modules of the present folder are found too."""

from __future__ import annotations

import importlib
import sys
import traceback
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from quantrt.errors import DataError, UsageError, close_match

__all__ = ["Loader", "failure_text", "find_function"]


PACKAGE = Path(__file__).resolve().parents[2]


class Loader:
    """Samples that a function without arguments gives, which is called whenever they are read.

    Attributes:
        reference: `module:function`, or what the function calls itself.

    Args:
        function: it, or `module:function`.
    """

    def __init__(self, function: str | Callable[[], Any]) -> None:
        if isinstance(function, str):
            self.reference, self._function = function, find_function(function)
        else:
            self.reference, self._function = getattr(function, "__name__", repr(function)), function

    def __iter__(self) -> Iterator[Any]:
        try:
            yield from _in_turn(self._function())
        except Exception as error:
            raise DataError(
                f"cannot read the samples of '{self.reference}'",
                got=failure_text(error),
                expected="a function without arguments that gives dicts of arrays",
                hint="the same with --traceback, which shows where",
            ) from error


def _in_turn(made: Any) -> Iterable[Any]:
    """The samples; what has no more than ONNX Runtime's `get_next` is asked until it has none."""
    is_asked = not hasattr(made, "__iter__") and callable(getattr(made, "get_next", None))
    return iter(made.get_next, None) if is_asked else made


def find_function(reference: str) -> Callable[..., Any]:
    """The function `module:function`.

    Raises:
        UsageError: there is no such module, it fails as it is imported, or there is no such function in it.
    """
    module_name, _, name = reference.partition(":")
    folder = str(Path.cwd())
    sys.path.insert(0, folder)  # as `python -m` does: the function usually lies beside the data
    try:
        module = importlib.import_module(module_name.removesuffix(".py"))
    except Exception as error:  # whatever a module of the user's does
        raise UsageError(
            f"cannot find the function '{reference}'",
            got=failure_text(error),
            hint="the same with --traceback, which shows where"
            if not isinstance(error, ModuleNotFoundError)
            else None,
        ) from error
    finally:
        sys.path.remove(folder)
    function = getattr(module, name, None)
    if not callable(function):
        near = close_match(name, [key for key, value in vars(module).items() if callable(value)])
        raise UsageError(
            f"cannot find the function '{reference}'",
            got=f"no function '{name}' in '{module_name}'"
            if function is None
            else f"'{name}' is no function: {type(function).__name__}",
            hint=f"'{module_name}:{near}'" if near else None,
        )
    return function  # type: ignore[no-any-return]


def failure_text(error: Exception) -> str:
    """What went wrong in code of the user's, and where: "KeyError: 'box' (line 7 of my_metrics.py)"."""
    if isinstance(error, ModuleNotFoundError):
        return str(error)
    text = f"{type(error).__name__}: {error}"
    if isinstance(error, SyntaxError):  # which says where
        return text
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if _is_users(frame)]
    return f"{text} (line {frames[-1].lineno} of {Path(frames[-1].filename).name})" if frames else text


def _is_users(frame: traceback.FrameSummary) -> bool:
    """Neither of QuantRT's own files nor of Python's import system."""
    return not frame.filename.startswith((str(PACKAGE), "<frozen"))
