# SPDX-License-Identifier: Apache-2.0
"""`quantrt calibrate`: model + data -> ranges file; and merging of such files."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from quantrt.cli.command import Command, Result
from quantrt.cli.data import DATA_HELP, add_preprocess, data_source
from quantrt.cli.options import add_config, read_config
from quantrt.cli.paths import check_output
from quantrt.cli.ranges import calibration_data, collect_stats
from quantrt.config import CalibrationConfig
from quantrt.errors import UsageError

if TYPE_CHECKING:
    from quantrt.calibrate.stats import Stats

__all__ = ["COMMAND"]


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    """Model and data, or files to merge; where to write."""
    parser.add_argument("model", type=Path, nargs="?", metavar="MODEL.onnx", help="the float model")
    parser.add_argument(
        "-o", "--output", type=Path, required=True, metavar="X.ranges", help="ranges file to write"
    )
    parser.add_argument("--calib-data", type=data_source, metavar="P", help=f"calibration data: {DATA_HELP}")
    add_preprocess(parser)
    parser.add_argument(
        "--merge",
        type=Path,
        nargs="+",
        metavar="X.ranges",
        help="add up ranges files of one model; runs nothing",
    )
    parser.add_argument("--resume", action="store_true", help="continue an interrupted run with the same -o")
    add_config(parser, CalibrationConfig, "calibration")


def _run(args: argparse.Namespace) -> Result:
    """Collect or merge statistics and save them."""
    from quantrt.calibrate.stats import save_stats
    from quantrt.report.inspect_ranges import describe_ranges, show_ranges

    check_output(args.output, ".ranges")
    _check_sources(args)
    config = read_config(args, CalibrationConfig)
    stats = _merge(args.merge) if args.merge else _collect(args, config)
    save_stats(stats, args.output)
    data = describe_ranges(stats, args.output, config)
    return Result(data, lambda: show_ranges(data, layers=False))


def _check_sources(args: argparse.Namespace) -> None:
    given = [flag for flag, value in (("MODEL.onnx", args.model), ("--merge", args.merge)) if value]
    if len(given) != 1:
        raise UsageError(
            "cannot tell what to calibrate",
            got=" and ".join(given) or "neither a model nor --merge",
            expected="MODEL.onnx with data, or --merge A.ranges B.ranges",
        )
    if args.model and bool(args.calib_data) == bool(args.calib_random):
        raise UsageError(
            "cannot calibrate from two sources" if args.calib_data else "cannot calibrate without data",
            expected="--calib-data P or --calib-random",
        )


def _merge(paths: list[Path]) -> Stats:
    from quantrt.calibrate.stats import load_stats

    stats = load_stats(paths[0])
    for path in paths[1:]:
        stats = stats.merge(load_stats(path))
    return stats


def _collect(args: argparse.Namespace, config: CalibrationConfig) -> Stats:
    from quantrt.model.load import load_model

    checkpoint = args.output.with_suffix(".partial")
    if not args.resume:
        checkpoint.unlink(missing_ok=True)
    model = load_model(args.model)
    dataset = calibration_data(model, args, config)
    return collect_stats(model, dataset, config, resume=checkpoint, quiet=args.quiet)


COMMAND = Command(
    name="calibrate",
    summary="observe a model's activations on data, write a ranges file",
    details="Run the float model on the data once and keep one histogram per tensor, in a file that `build` "
    "and `quantize` read. The range method is chosen later, from the same file. Files of parts of "
    "the data can be merged; the result equals one pass over all of it, bit for bit.",
    examples=(
        ("one pass over the data", "quantrt calibrate model.onnx --calib-data calib.npz -o model.ranges"),
        (
            "the same after an interruption",
            "quantrt calibrate model.onnx --calib-data calib.npz -o model.ranges --resume",
        ),
        ("two machines' halves", "quantrt calibrate --merge a.ranges b.ranges -o model.ranges"),
    ),
    add_arguments=_add_arguments,
    run=_run,
)
