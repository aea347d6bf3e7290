# SPDX-License-Identifier: Apache-2.0
"""`quantrt tune`: the assignment for another budget, from what an earlier build measured."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from quantrt.cli.command import Command, Result
from quantrt.cli.options.data import DATA_HELP, add_preprocess, data_source
from quantrt.cli.options.options import add_config
from quantrt.cli.options.paths import check_output
from quantrt.config import BenchConfig, DeviceConfig
from quantrt.errors import AccuracyError, UsageError

if TYPE_CHECKING:
    from quantrt.assign.assignment.assignment import Assigned
    from quantrt.assign.tables.tables import Tables

__all__ = ["COMMAND"]

TABLES_HELP = "what `quantrt build --tables` wrote (.json), or an engine with mixed precisions (.qrt)"

ASKED = ("max_drop", "max_noise", "max_ms", "max_size_mb", "max_size_ratio")
"""Options of which one is given, by their names."""

MB = 1e6


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
    budget.add_argument(
        "--max-ms", "--max-time-ms", type=float, metavar="MS", help="the least noise in no more time"
    )
    budget.add_argument(
        "--max-size-mb", type=float, metavar="MB", help="the least noise in a model that is no larger"
    )
    budget.add_argument(
        "--max-size-ratio", type=float, metavar="R", help="the same, as a fraction of the float model"
    )
    rules = parser.add_argument_group("constraints")
    for flag, what in (("--exclude", "keep these layers float"), ("--only", "let no other layers be 8-bit")):
        rules.add_argument(
            flag, action="append", default=[], metavar="GLOB", help=f"{what}: name or glob, repeatable"
        )
    parser.add_argument("--all", action="store_true", help="list every region that stays float")
    made = parser.add_argument_group("building it")
    made.add_argument("--build", type=Path, metavar="MODEL.onnx", help="build and verify what was found")
    made.add_argument("-o", "--output", type=Path, metavar="ENGINE.qrt", help="engine file to write")
    made.add_argument("--calib-data", type=data_source, metavar="P", help=f"calibration data: {DATA_HELP}")
    made.add_argument("--valid-data", type=data_source, metavar="P", help="validation data")
    made.add_argument("--labels", metavar="L", help="labels of --valid-data")
    made.add_argument("--ranges", type=Path, metavar="X.ranges", help="result of `quantrt calibrate`")
    add_preprocess(made)
    add_config(parser, DeviceConfig, "device of the build", skip=("device", "libraries"))
    add_config(parser, BenchConfig, "timing of the build")


def _run(args: argparse.Namespace) -> Result:
    from quantrt.report.tune import describe_assigned, open_tables, show_assigned

    asked = {name: getattr(args, name) for name in ASKED if getattr(args, name) is not None}
    if len(asked) != 1:
        raise UsageError(
            "one thing can be asked for", got=f"{len(asked)} options", expected="one", hint="--max-drop 0.01"
        )
    ((name, value),) = asked.items()
    if not value >= 0.0:
        raise UsageError(f"cannot use --{name.replace('_', '-')}", got=str(value), expected="0 or more")
    _check_build(args)
    tables = open_tables(args.tables)
    found = _solve(_restricted(tables, args), name, value)
    if found is None:
        raise AccuracyError(
            f"no assignment of '{args.tables}' has {name.replace('_', ' ')} {value:g}",
            hint=f"quantrt pareto {args.tables}",
        )
    if args.build is not None:
        from quantrt.cli.verbs.tune_build import build_assigned

        return build_assigned(args, tables, found)
    data = describe_assigned(tables, found, path=args.tables, asked={name.replace("_", " "): value})
    return Result(data, lambda: show_assigned(data, everything=args.all))


def _check_build(args: argparse.Namespace) -> None:
    """What --build needs is there, and nothing is given that would go unused."""
    if args.build is None:
        names = ("output", "calib_data", "valid_data", "ranges", "labels")
        unused = next((name for name in names if getattr(args, name) is not None), None)
        if unused is not None:
            flag = f"--{unused.replace('_', '-')}"
            raise UsageError(f"{flag} is for --build alone", hint="--build MODEL.onnx")
        return
    if args.output is None:
        raise UsageError("an engine that is built has to be written", hint="-o ENGINE.qrt")
    check_output(args.output, ".qrt", reads=(args.tables,))
    if args.calib_data is None and args.ranges is None:
        raise UsageError("cannot build an 8-bit engine without calibration", hint="--calib-data P")


def _restricted(tables: Tables, args: argparse.Namespace) -> Tables:
    from quantrt.assign.tables.restrict import regions_named, restrict

    floats = regions_named(tables.regions, args.exclude, "--exclude")
    if args.only:
        allowed = regions_named(tables.regions, args.only, "--only")
        floats |= {region.name for region in tables.regions} - allowed
    return restrict(tables, floats)


def _solve(tables: Tables, name: str, value: float) -> Assigned | None:
    """By the option that asks for it."""
    from quantrt.assign.assignment.assignment import (
        assign,
        assign_within_drop,
        assign_within_size,
        assign_within_time,
    )

    match name:
        case "max_drop":
            return assign_within_drop(tables, value)
        case "max_noise":
            return assign(tables, value)
        case "max_ms":
            return assign_within_time(tables, value)
        case "max_size_mb":
            return assign_within_size(tables, value * MB)
        case _:
            return assign_within_size(tables, value * _float_bytes(tables))


def _float_bytes(tables: Tables) -> float:
    from quantrt.assign.assignment.assignment import uniform
    from quantrt.assign.tables.region import FLOAT

    return 0.0 if tables.sizes is None else float(tables.sizes.predict_bytes(uniform(tables, FLOAT)))


COMMAND = Command(
    name="tune",
    summary="another accuracy budget, answered from what a build measured",
    details="Solves for the fastest precisions within a budget, or the least damage in a time or size, with "
    "the damages, times and sizes of an earlier build. Nothing is run, but with --build: the engine is made, "
    "timed and checked against the float one.",
    examples=(
        ("what would half the budget cost?", "quantrt tune model.tables.json --max-drop 0.005"),
        ("from the engine itself", "quantrt tune model.qrt --max-drop 0.005"),
        ("the best that runs in 4 ms", "quantrt tune model.tables.json --max-ms 4"),
        ("the best in half the size", "quantrt tune model.tables.json --max-size-ratio 0.5"),
        (
            "build it",
            "quantrt tune model.tables.json --max-drop 0.005 --build model.onnx --calib-data calib.npz "
            "--valid-data valid.npz -o model.qrt",
        ),
    ),
    add_arguments=_add_arguments,
    run=_run,
)
