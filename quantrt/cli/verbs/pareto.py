# SPDX-License-Identifier: Apache-2.0
"""`quantrt pareto`: time against accuracy, from what an earlier build measured."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from quantrt.cli.command import Command, Result
from quantrt.cli.options.paths import check_output
from quantrt.cli.verbs.tune import TABLES_HELP
from quantrt.errors import UsageError

__all__ = ["COMMAND"]

POINTS = 12


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("tables", type=Path, metavar="TABLES", help=TABLES_HELP)
    parser.add_argument(
        "--points", type=int, default=POINTS, metavar="N", help=f"assignments at most (default: {POINTS})"
    )
    for kind, what in (("svg", "also draw it"), ("png", "the same in pixels"), ("html", "picture and table")):
        parser.add_argument(f"--{kind}", type=Path, metavar=f"FILE.{kind}", help=what)


def _run(args: argparse.Namespace) -> Result:
    for path, suffix in ((args.svg, ".svg"), (args.png, ".png"), (args.html, ".html")):
        if path is not None:
            check_output(path, suffix, reads=(args.tables,))
    if args.points < 2:
        raise UsageError("cannot draw a front", got=f"{args.points} points", expected="2 at least")
    from quantrt.assign.assignment.assignment import pareto_front
    from quantrt.report.tune import describe_front, open_tables, show_front

    tables = open_tables(args.tables)
    data = describe_front(tables, pareto_front(tables, args.points), path=args.tables)
    _write(args, data)
    return Result(data, lambda: show_front(data))


def _write(args: argparse.Namespace, data: Mapping[str, Any]) -> None:
    """The files that are asked for."""
    from quantrt.cli.write import write_bytes, write_text
    from quantrt.report.pareto.chart import draw_front
    from quantrt.report.pareto.page import front_page
    from quantrt.report.pareto.png import front_png
    from quantrt.report.tune import front_table

    if args.svg is not None:
        write_text(args.svg, draw_front(data))
    if args.png is not None:
        write_bytes(args.png, front_png(data))
    if args.html is not None:
        write_text(args.html, front_page(data, *front_table(data)))


COMMAND = Command(
    name="pareto",
    summary="time against accuracy, from what a build measured",
    details="Solves for the fastest precisions at one amount of noise after the other; nothing is run.",
    examples=(
        ("as a table", "quantrt pareto model.tables.json"),
        ("and as a picture", "quantrt pareto model.qrt --svg front.svg"),
        ("and as a page to hand on", "quantrt pareto model.qrt --html front.html"),
    ),
    add_arguments=_add_arguments,
    run=_run,
)
