# SPDX-License-Identifier: Apache-2.0
"""`quantrt completion`: the completion script of a shell."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from quantrt.cli.command import Command, Result
from quantrt.cli.options.data import data_source
from quantrt.cli.parser import verb_parsers
from quantrt.recipe import recipe_names

__all__ = ["COMMAND", "completion_script"]

SHELLS = ("bash", "zsh", "fish")

FILE_OPTIONS = ("--labels", "--tables", "--timing-cache")
"""Options that take a file and keep it as text."""


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    """The shell's name."""
    parser.add_argument("shell", choices=SHELLS, metavar="SHELL", help="bash, zsh or fish")


def _run(args: argparse.Namespace) -> Result:
    """Print the script."""
    script = completion_script(args.parser, args.shell)
    return Result({"shell": args.shell, "script": script}, lambda: print(script))


def completion_script(parser: argparse.ArgumentParser, shell: str) -> str:
    """A script that completes the parser's commands, options, choices and file names in `shell`."""
    import shtab  # imported here alone: no other verb pays for it

    from quantrt.assign.accuracy.metric import METRICS  # of all verbs, those that build pay for it otherwise

    named = {
        "--metric": _completion("metric", METRICS, takes_files=False),
        "--recipe": _completion("recipe", recipe_names(), takes_files=True),
    }
    for action in (action for verb in (parser, *verb_parsers(parser).values()) for action in verb._actions):
        option = (action.option_strings or [""])[-1]
        if option in named:
            action.complete = named[option]  # type: ignore[attr-defined]
        elif action.type in (Path, data_source) or option in FILE_OPTIONS:
            action.complete = shtab.FILE  # type: ignore[attr-defined]
    return str(shtab.complete(parser, shell))


def _completion(what: str, names: Sequence[str], *, takes_files: bool) -> dict[str, str | dict[str, str]]:
    """How shells complete an option that takes names, and maybe files; as shtab's `complete` wants it."""
    function, words = f"_quantrt_{what}", " ".join(names)
    bash, zsh, fish = "compgen -f -- $1", "'files:file:_files'", "__fish_complete_path (commandline -ct)"
    if not takes_files:
        bash = zsh = fish = ""
    return {
        "bash": function,
        "zsh": function,
        "fish": f"({function})",
        "preamble": {
            "bash": f"{function}() {{\n  compgen -W '{words}' -- $1\n  {bash}\n}}",
            "zsh": f"{function}() {{\n  _alternative '{what}:{what}:({words})' {zsh}\n}}",
            "fish": f"function {function}\n  printf '%s\\n' {words}\n  {fish}\nend",
        },
    }


COMMAND = Command(
    name="completion",
    summary="print the completion script of a shell",
    details="Print a script that completes commands, options and file names; the shell reads it at its "
    "start.",
    examples=(
        ("in the present bash", 'eval "$(quantrt completion bash)"'),
        (
            "in every bash from now on",
            "quantrt completion bash > ~/.local/share/bash-completion/completions/quantrt",
        ),
        ("for zsh, in a folder of $fpath", "quantrt completion zsh > ~/.zfunc/_quantrt"),
        ("for fish", "quantrt completion fish > ~/.config/fish/completions/quantrt.fish"),
    ),
    add_arguments=_add_arguments,
    run=_run,
)
