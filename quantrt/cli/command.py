# SPDX-License-Identifier: Apache-2.0
"""What one verb of the command line is."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass

__all__ = ["Command", "Result"]


@dataclass(frozen=True)
class Result:
    """What a verb hands back.

    Attributes:
        data: the JSON document that `--json` prints.
        show: prints the same for people, on stdout.
        exit_code: 0, or 1 when a check failed.
    """

    data: object
    show: Callable[[], None]
    exit_code: int = 0


@dataclass(frozen=True)
class Command:
    """One verb.

    Attributes:
        name: as typed.
        summary: one line, shown by `quantrt -h`.
        details: a paragraph for `quantrt NAME -h`.
        examples: pairs (what it does, command), shown at the end of `quantrt NAME -h`.
        add_arguments: declares the verb's own arguments; imports no heavy package.
        run: does the work; imports what it needs inside.
        reads_words: `run` gets the words behind the name as `args.words`, unread: they follow rules of their
            own. What `add_arguments` declares is for help texts and shells then.
    """

    name: str
    summary: str
    details: str
    examples: tuple[tuple[str, str], ...]
    add_arguments: Callable[[argparse.ArgumentParser], None]
    run: Callable[[argparse.Namespace], Result]
    reads_words: bool = False
