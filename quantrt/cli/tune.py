# SPDX-License-Identifier: Apache-2.0
"""`quantrt tune`: the assignment for another budget, from what an earlier build measured."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from quantrt.cli.command import Command, Result
from quantrt.errors import AccuracyError, UsageError

if TYPE_CHECKING:
    from quantrt.assign.assignment import Assigned
    from quantrt.assign.tables import Tables

__all__ = ["COMMAND"]

TABLES_HELP = "what `quantrt build --tables` wrote (.json), or an engine with mixed precisions (.qrt)"


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("tables", type=Path, metavar="TABLES", help=TABLES_HELP)
    budget = parser.add_argument_group("what is wanted: one of these")
    budget.add_argument(
        "--max-drop",
        type=float,
        metavar="R",
        help="the fastest that loses no more of the metric, as a fraction",
    )
    budget.add_argument(
        "--max-noise", type=float, metavar="R", help="the fastest with no more noise in the outputs, by power"
    )
    budget.add_argument("--max-ms", type=float, metavar="MS", help="the least noise in no more time")
    parser.add_argument("--all", action="store_true", help="list every region that stays float")


def _run(args: argparse.Namespace) -> Result:
    from quantrt.assign.assignment import assign, assign_within_drop, assign_within_time
    from quantrt.report.tune_report import describe_assigned, open_tables, show_assigned

    solvers: dict[str, Callable[[Tables, float], Assigned | None]]
    solvers = {"max_drop": assign_within_drop, "max_noise": assign, "max_ms": assign_within_time}
    asked = {name: getattr(args, name) for name in solvers if getattr(args, name) is not None}
    if len(asked) != 1:
        raise UsageError(
            "one thing can be asked for", got=f"{len(asked)} options", expected="one", hint="--max-drop 0.01"
        )
    ((name, value),) = asked.items()
    if not value >= 0.0:
        raise UsageError(f"cannot use --{name.replace('_', '-')}", got=str(value), expected="0 or more")
    tables = open_tables(args.tables)
    found = solvers[name](tables, value)
    if found is None:
        raise AccuracyError(
            f"no assignment of '{args.tables}' has {name.replace('_', ' ')} {value:g}",
            hint=f"quantrt pareto {args.tables}",
        )
    data = describe_assigned(tables, found, path=args.tables, asked={name.replace("_", " "): value})
    return Result(data, lambda: show_assigned(data, everything=args.all))


COMMAND = Command(
    name="tune",
    summary="another accuracy budget, answered from what a build measured",
    details="Solves for the fastest precisions within a budget, with the damages and times of an earlier "
    "build; nothing is run. The same budget given to `quantrt build` with the same --tables builds and "
    "verifies it.",
    examples=(
        ("what would half the budget cost?", "quantrt tune model.tables.json --max-drop 0.005"),
        ("from the engine itself", "quantrt tune model.qrt --max-drop 0.005"),
        ("the best that runs in 4 ms", "quantrt tune model.tables.json --max-ms 4"),
    ),
    add_arguments=_add_arguments,
    run=_run,
)
