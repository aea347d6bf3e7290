# SPDX-License-Identifier: Apache-2.0
"""`quantrt calibrate`: model + data -> ranges file or cache; ranges files merged, compared, drawn."""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from quantrt.cli.command import Command, Result
from quantrt.cli.options.data import DATA_HELP, add_preprocess, data_source
from quantrt.cli.options.options import add_config, read_config
from quantrt.cli.options.paths import check_output
from quantrt.cli.options.ranges import calibration_data, collect_stats, read_stats
from quantrt.config import CalibrationConfig
from quantrt.errors import DataError, UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from quantrt.calibrate.stats import Stats
    from quantrt.model.model import Model

__all__ = ["COMMAND"]

CACHE_SUFFIXES = (".cache", ".flatbuffers")

MOST_DRAWN = 2
"""Calibrations in one picture."""


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    """Model and data, or files to merge; where to write."""
    parser.add_argument("model", type=Path, nargs="?", metavar="MODEL.onnx", help="the float model")
    parser.add_argument(
        "-o",
        "--output",
        type=Path,
        metavar="FILE",
        help="X.ranges; X.cache for TensorRT; X.flatbuffers for ONNX Runtime's TensorRT provider; with "
        "--plot X.svg or X.html",
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
    parser.add_argument(
        "--diff",
        type=Path,
        nargs=2,
        metavar="X.ranges",
        help="how two calibrations of one model differ, and what the first costs on the second's data",
    )
    parser.add_argument(
        "--plot",
        type=Path,
        nargs="+",
        metavar="X.ranges",
        help="draw histograms with the chosen ranges; a second file is drawn over the first",
    )
    parser.add_argument("--layers", action="store_true", help="with --diff: list every tensor")
    parser.add_argument(
        "--ranges", type=Path, metavar="X.ranges", help="write a cache of these; runs nothing"
    )
    parser.add_argument(
        "--cache-header",
        metavar="HEADER",
        help="first line of a cache (default: TRT-8601-EntropyCalibration2)",
    )
    parser.add_argument("--resume", action="store_true", help="continue an interrupted run with the same -o")
    add_config(parser, CalibrationConfig, "calibration")


def _run(args: argparse.Namespace) -> Result:
    """Collect or merge statistics and save them; or compare or draw saved ones."""
    if args.diff or args.plot:
        return _look(args)
    if args.output is None:
        raise UsageError("cannot calibrate without a file to write", expected="-o X.ranges or -o X.cache")
    check_output(args.output, ".ranges", *CACHE_SUFFIXES, reads=args.merge or ())
    _check_sources(args)
    config = read_config(args, CalibrationConfig)
    return _write_cache(args, config) if _is_cache(args) else _write_ranges(args, config)


def _look(args: argparse.Namespace) -> Result:
    """What --diff and --plot do: read ranges files, run nothing."""
    flag = "--diff" if args.diff else "--plot"
    others = {
        f"'{args.model}'": args.model,
        "--merge": args.merge,
        "--plot": args.diff and args.plot,
        "--calib-data": args.calib_data,
        "--ranges": args.ranges,
    }
    extra = [name for name, value in others.items() if value]
    if extra:
        expected = "--diff A.ranges B.ranges" if args.diff else "--plot A.ranges [B.ranges] -o FILE.svg"
        raise UsageError(
            f"{flag} reads ranges files alone", got=f"{' and '.join(extra)} beside it", expected=expected
        )
    config = read_config(args, CalibrationConfig)
    return _diff(args, config) if args.diff else _plot(args, config)


def _diff(args: argparse.Namespace, config: CalibrationConfig) -> Result:
    from quantrt.calibrate.stats import load_stats
    from quantrt.report.ranges.diff import describe_diff, show_diff

    if args.output is not None:
        raise UsageError("--diff writes no file", got=f"-o {args.output}", hint="--json, or --plot")
    first, second = (load_stats(path) for path in args.diff)
    data = describe_diff(first, second, tuple(args.diff), config)
    return Result(data, lambda: show_diff(data, layers=args.layers))


def _plot(args: argparse.Namespace, config: CalibrationConfig) -> Result:
    from quantrt.calibrate.stats import load_stats
    from quantrt.cli.write import write_text
    from quantrt.report.ranges.chart import draw_ranges, ranges_page
    from quantrt.report.ranges.diff import describe_diff

    if args.output is None or len(args.plot) > MOST_DRAWN:
        raise UsageError(
            "cannot draw ranges",
            got=f"{len(args.plot)} files" if args.output is not None else "no file to write",
            expected="--plot A.ranges [B.ranges] -o FILE.svg or FILE.html",
        )
    check_output(args.output, ".svg", ".html")
    stats = [load_stats(path) for path in args.plot]
    if len(stats) == MOST_DRAWN:
        describe_diff(stats[0], stats[1], tuple(args.plot), config)  # of one model
    picture = draw_ranges(stats[0], config, other=stats[1] if len(stats) == MOST_DRAWN else None)
    is_page = args.output.suffix == ".html"
    write_text(args.output, ranges_page(picture, str(args.plot[0])) if is_page else picture)
    data = {"kind": "ranges plot", "output": str(args.output), "tensors": len(stats[0].tensors)}
    return Result(data, lambda: print(f"{args.output}: {data['tensors']} tensors"))


def _is_cache(args: argparse.Namespace) -> bool:
    return args.output.suffix in CACHE_SUFFIXES


def _write_ranges(args: argparse.Namespace, config: CalibrationConfig) -> Result:
    from quantrt.calibrate.stats import save_stats
    from quantrt.model.load import load_model
    from quantrt.report.ranges.file import describe_ranges, show_ranges

    stats = _merge(args.merge) if args.merge else _collect(load_model(args.model), args, config, None)
    save_stats(stats, args.output)
    data = describe_ranges(stats, args.output, config)
    return Result(data, lambda: show_ranges(data, layers=False))


def _write_cache(args: argparse.Namespace, config: CalibrationConfig) -> Result:
    from quantrt.calibrate.caches.trt_cache import DEFAULT_HEADER, check_header, read_cache, write_cache
    from quantrt.model.load import load_model
    from quantrt.quantize.make_cache import float_activations, make_cache
    from quantrt.report.ranges.cache import describe_cache, show_cache

    header = check_header(args.cache_header or DEFAULT_HEADER)
    model = load_model(args.model)
    if args.ranges is not None:
        stats = read_stats(args.ranges, model)
    else:
        stats = _collect(model, args, config, float_activations(model))
    cache = make_cache(model, stats, config, str(args.output), header)
    write_cache(cache, args.output)
    data = describe_cache(replace(read_cache(args.output), notes=cache.notes), args.output)
    return Result(data, lambda: show_cache(data, layers=False))


def _check_sources(args: argparse.Namespace) -> None:
    given = [flag for flag, value in (("MODEL.onnx", args.model), ("--merge", args.merge)) if value]
    if len(given) != 1:
        raise UsageError(
            "cannot tell what to calibrate",
            got=" and ".join(given) or "neither a model nor --merge",
            expected="MODEL.onnx with data, or --merge A.ranges B.ranges",
            hint="quantrt calibrate MODEL.onnx --calib-data P -o X.ranges",
        )
    if args.merge and _is_cache(args):
        raise UsageError(
            "--merge writes a ranges file",
            got=f"'{args.output}'",
            hint=f"-o {args.output.with_suffix('.ranges')}, and a cache of that with --ranges",
        )
    if args.ranges and not _is_cache(args):
        raise UsageError("--ranges is what a cache is written of", got=f"'{args.output}'", hint="-o X.cache")
    if args.cache_header and args.output.suffix != ".cache":
        raise UsageError("--cache-header is of TensorRT's caches", got=f"'{args.output}'", hint="-o X.cache")
    sources = {"--calib-data": args.calib_data, "--calib-random": args.calib_random, "--ranges": args.ranges}
    found = [flag for flag, value in sources.items() if value]
    if args.model and len(found) != 1:
        raise UsageError(
            "cannot calibrate from two sources" if found else "cannot calibrate without data",
            got=" and ".join(found) or None,
            expected="--calib-data P or --calib-random"
            + (" or --ranges X.ranges" if _is_cache(args) else ""),
            hint=f"{found[0]} alone" if found else "--calib-data P",
        )


def _merge(paths: list[Path]) -> Stats:
    from quantrt.calibrate.stats import load_stats

    stats = load_stats(paths[0])
    first_of, twice = {stats.data_hash: paths[0]}, []
    for path in paths[1:]:
        try:
            part = load_stats(path)
            stats = stats.merge(part)
        except DataError as error:
            raise DataError(
                f"cannot merge '{path}' with '{paths[0]}': {error.message}",
                got=error.got,
                expected=error.expected,
                hint=error.hint,
            ) from error
        if part.data_hash in first_of:
            twice.append(f"'{path}' is of the same samples as '{first_of[part.data_hash]}': they count again")
        first_of.setdefault(part.data_hash, path)
    return replace(stats, notes=(*stats.notes, *twice))


def _collect(
    model: Model, args: argparse.Namespace, config: CalibrationConfig, names: Sequence[str] | None
) -> Stats:
    checkpoint = args.output.with_suffix(".partial")
    if not args.resume:
        checkpoint.unlink(missing_ok=True)
    dataset = calibration_data(model, args, config)
    return collect_stats(model, dataset, config, names=names, resume=checkpoint, quiet=args.quiet)


COMMAND = Command(
    name="calibrate",
    summary="observe a model's activations on data, write a ranges file or a TensorRT cache",
    details="Run the float model on the data once and keep one histogram per tensor, in a file that `build` "
    "and `quantize` read. The range method is chosen later, from the same file. Files of parts of "
    "the data can be merged; the result equals one pass over all of it, bit for bit. "
    "With -o X.cache every float tensor is observed, and the scales are written for TensorRT.",
    examples=(
        ("one pass over the data", "quantrt calibrate model.onnx --calib-data calib.npz -o model.ranges"),
        (
            "the same after an interruption",
            "quantrt calibrate model.onnx --calib-data calib.npz -o model.ranges --resume",
        ),
        (
            "a calibration cache for TensorRT 10.3",
            "quantrt calibrate model.onnx --calib-data calib.npz "
            "--cache-header TRT-100300-EntropyCalibration2 -o calibration.cache",
        ),
        ("two machines' halves", "quantrt calibrate --merge a.ranges b.ranges -o model.ranges"),
        ("is the new data like the old?", "quantrt calibrate --diff old.ranges new.ranges"),
        ("histograms with their ranges", "quantrt calibrate --plot model.ranges -o ranges.svg"),
    ),
    add_arguments=_add_arguments,
    run=_run,
)
