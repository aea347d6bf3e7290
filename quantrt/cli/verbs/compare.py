# SPDX-License-Identifier: Apache-2.0
"""`quantrt compare`: do two models give the same outputs?"""

from __future__ import annotations

import argparse
from pathlib import Path

from quantrt.cli.command import Command, Result
from quantrt.cli.options.data import DATA_HELP, add_preprocess, data_source, open_data
from quantrt.cli.options.options import add_config, read_config
from quantrt.config import CompareConfig
from quantrt.errors import UsageError

__all__ = ["COMMAND"]


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "reference", type=Path, metavar="A", help="what is right: .onnx (float or Q/DQ) or .qrt"
    )
    parser.add_argument(
        "subject", type=Path, metavar="B", help="what is checked: .onnx (float or Q/DQ) or .qrt"
    )
    parser.add_argument("--data", type=data_source, required=True, metavar="P", help=f"inputs: {DATA_HELP}")
    add_preprocess(parser)
    parser.add_argument(
        "--layers",
        action="store_true",
        help="also compare every layer: in floats, fake-quantized, compiled; which layers do the damage",
    )
    parser.add_argument(
        "--all", action="store_true", help="with --layers or --reference: every layer or region"
    )
    parser.add_argument(
        "--reference",
        dest="codes",
        action="store_true",
        help="hold B's codes against those that its final graph defines, computed in numpy, region by region",
    )
    parser.add_argument(
        "--bisect",
        action="store_true",
        help="find the fewest nodes that show a failure (a difference, NaN, a crash), and save them",
    )
    parser.add_argument("-o", "--output", type=Path, metavar="FOLDER", help="with --bisect: folder to write")
    add_config(parser, CompareConfig, "limits")


def _run(args: argparse.Namespace) -> Result:
    from quantrt.report.codes.compare_codes import compare_codes, show_codes
    from quantrt.report.compare.comparable import check_inputs
    from quantrt.report.compare.compare import compare
    from quantrt.report.compare.show import show_comparison
    from quantrt.report.progress import progress_bars
    from quantrt.report.subject import open_subject

    _check(args)
    config = read_config(args, CompareConfig)
    if args.bisect:
        return _bisect(args, config)
    with open_subject(args.reference) as reference, open_subject(args.subject) as subject:
        check_inputs(reference, subject)
        dataset = open_data(args.data, reference.inputs, preprocess=args.preprocess)
        with progress_bars(quiet=args.quiet) as bars:
            if args.codes:
                data = compare_codes(reference, subject, dataset, config, counter=bars.counter)
            else:
                data = compare(reference, subject, dataset, config, layers=args.layers, counter=bars.counter)
    show = show_codes if args.codes else show_comparison
    return Result(data, lambda: show(data, every=args.all), exit_code=0 if data["passed"] else 1)


def _check(args: argparse.Namespace) -> None:
    """Options that need each other.

    Raises:
        UsageError: one is missing.
    """
    if args.bisect and args.output is None:
        raise UsageError("cannot bisect without a folder to write", hint="--bisect -o FOLDER")
    if args.codes and (args.bisect or args.layers):
        raise UsageError("--reference compares codes alone", hint="--reference first, then --layers")
    if args.bisect and args.layers:
        raise UsageError("cannot show layers and bisect at once", hint="--layers first, then --bisect")
    if args.output is not None and not args.bisect:
        raise UsageError("a comparison writes no file", got=f"-o {args.output}", hint="--bisect, or --json")
    if args.all and not (args.layers or args.codes):
        raise UsageError(
            "--all shows every layer, and there are none without --layers", hint="--layers --all"
        )


def _bisect(args: argparse.Namespace, config: CompareConfig) -> Result:
    from quantrt.report.bisect.bisect import bisect, read_sides, show_bisection
    from quantrt.report.bisect.folder import check_folder
    from quantrt.report.progress import progress_bars

    check_folder(args.output)
    sides = read_sides(args.reference, args.subject)
    dataset = open_data(args.data, sides[0].inputs, preprocess=args.preprocess)
    with progress_bars(quiet=args.quiet) as bars:
        data = bisect(sides, dataset, config, args.output, bars.counter("bisecting", "runs"))
    return Result(data, lambda: show_bisection(data), exit_code=0 if data["passed"] else 1)


COMMAND = Command(
    name="compare",
    summary="compare the outputs, or every layer, of two models or engines",
    details="Run A and B on the same data and show, per output, the largest absolute difference, the cosine "
    "and the signal to quantization noise (SQNR). Ends with PASSED (exit code 0) or FAILED (1). "
    "Without a limit of your own an output passes at 20 dB SQNR, which is noise of 1 % of the "
    "signal's power.",
    examples=(
        ("is the engine close to the float model?", "quantrt compare model.onnx model.qrt --data valid.npz"),
        (
            "where does the error come in?",
            "quantrt compare model.onnx model.int8.onnx --data valid.npz --layers",
        ),
        (
            "are the engine's integer codes right?",
            "quantrt compare model.onnx model.qrt --data valid.npz --reference",
        ),
        (
            "the fewest nodes that show a failure",
            "quantrt compare model.onnx model.qrt --data valid.npz --bisect -o failure",
        ),
        (
            "limits of your own",
            "quantrt compare model.onnx model.qrt --data valid.npz --min-sqnr 30 --min-cosine 0.999",
        ),
    ),
    add_arguments=_add_arguments,
    run=_run,
)
