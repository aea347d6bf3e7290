# SPDX-License-Identifier: Apache-2.0
"""Functions of the user, named `module:function`; modules of the present folder are found too."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from quantrt.errors import DataError, UsageError, close_match

__all__ = ["Loader", "find_function"]


class Loader:
    """Samples that a function without arguments gives, which is called whenever they are read.

    Attributes:
        reference: `module:function`.
    """

    def __init__(self, reference: str) -> None:
        self.reference = reference
        self._function = find_function(reference)

    def __iter__(self) -> Iterator[Any]:
        try:
            yield from self._function()
        except Exception as error:
            raise DataError(
                f"cannot read the samples of '{self.reference}'",
                got=f"{type(error).__name__}: {error}",
                expected="a function without arguments that gives dicts of arrays",
                hint="the same with --traceback, which shows where",
            ) from error


def find_function(reference: str) -> Callable[..., Any]:
    """The function `module:function`.

    Raises:
        UsageError: there is no such module, or no such function in it.
    """
    module_name, _, name = reference.partition(":")
    folder = str(Path.cwd())
    sys.path.insert(0, folder)  # as `python -m` does: the function usually lies beside the data
    try:
        module = importlib.import_module(module_name.removesuffix(".py"))
    except (ImportError, ValueError) as error:
        raise UsageError(f"cannot find the function '{reference}'", got=str(error)) from error
    finally:
        sys.path.remove(folder)
    function = getattr(module, name, None)
    if not callable(function):
        near = close_match(name, [key for key, value in vars(module).items() if callable(value)])
        raise UsageError(
            f"cannot find the function '{reference}'",
            got=f"no function '{name}' in '{module_name}'" if function is None else type(function).__name__,
            hint=f"'{module_name}:{near}'" if near else None,
        )
    return function  # type: ignore[no-any-return]
