# SPDX-License-Identifier: Apache-2.0
"""`quantrt tune --build`: the engine of an assignment that was found in saved tables."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from quantrt.cli.command import Result
from quantrt.cli.options.data import find_local_modules, open_data
from quantrt.cli.options.options import read_config
from quantrt.cli.options.ranges import read_stats
from quantrt.config import BenchConfig, Budget, BuildConfig, DeviceConfig
from quantrt.errors import AccuracyError
from quantrt.report.progress import progress_bars

if TYPE_CHECKING:
    from quantrt.assign.assignment.assignment import Assigned
    from quantrt.assign.tables.tables import Tables
    from quantrt.plan.plan import Plan

__all__ = ["build_assigned"]

ANY_DROP = 1.0
"""Where time or size was asked for, what it costs is measured and told, and is no reason to ship floats."""


def build_assigned(args: argparse.Namespace, tables: Tables, found: Assigned) -> Result:
    """Build, verify and save it.

    Raises:
        AccuracyError: what would be shipped is larger than was asked for; nothing is written.
    """
    from quantrt.assign.assignment.as_config import config_of
    from quantrt.build import build
    from quantrt.model.load import load_model
    from quantrt.report.inspect.engine import describe_engine, show_engine

    model = load_model(args.build)
    budget = Budget(
        metric=tables.metric,
        max_drop_ratio=ANY_DROP if args.max_drop is None else min(args.max_drop, ANY_DROP),
    )
    base = BuildConfig(
        device=read_config(args, DeviceConfig), bench=read_config(args, BenchConfig), budget=budget
    )
    config = config_of(tables, found, base, model)
    find_local_modules(tables.metric)
    calibration = validation = None
    if args.calib_data is not None:
        calibration = open_data(args.calib_data, model.inputs, preprocess=args.preprocess)
    if args.valid_data is not None:
        validation = open_data(args.valid_data, model.inputs, preprocess=args.preprocess, labels=args.labels)
    stats = None if args.ranges is None else read_stats(args.ranges, model)
    with progress_bars(quiet=args.quiet) as bars:
        engine = build(
            model,
            config=config,
            calibration=calibration,
            validation=validation,
            stats=stats,
            on_event=bars.on_event,
        )
    with engine:
        _check_size(args, tables, engine.plan)
        engine.save(args.output)
        data = describe_engine(engine.plan, args.output)
    return Result(data, lambda: show_engine(data))


def _check_size(args: argparse.Namespace, tables: Tables, plan: Plan) -> None:
    from quantrt.assign.assignment.assignment import uniform
    from quantrt.assign.tables.region import FLOAT

    limit = None if args.max_size_mb is None else args.max_size_mb * 1e6
    if args.max_size_ratio is not None and tables.sizes is not None:
        limit = args.max_size_ratio * tables.sizes.predict_bytes(uniform(tables, FLOAT))
    if limit is not None and plan.model.size_bytes > limit:
        reason = plan.report.get("verdict", {}).get("reason", "")
        raise AccuracyError(
            f"what was built is larger than asked for: {reason}",
            got=f"{plan.model.size_bytes / 1e6:.3g} MB",
            expected=f"{limit / 1e6:.3g} MB",
            hint="a larger --max-size-mb",
        )
