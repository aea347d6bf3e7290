# SPDX-License-Identifier: Apache-2.0
"""`quantrt inspect`: what is in a model, a ranges file or an engine."""

from __future__ import annotations

import argparse
from pathlib import Path

from quantrt.cli.command import Command, Result
from quantrt.cli.options import add_config, read_config
from quantrt.config import CalibrationConfig
from quantrt.errors import UsageError

__all__ = ["COMMAND"]


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "file", type=Path, metavar="FILE", help="model (.onnx), ranges (.ranges) or engine (.qrt)"
    )
    parser.add_argument("--layers", action="store_true", help="list every layer or tensor, with the reason")
    skip = ("max_samples", "batch_size", "calib_random", "seed", "memory_mb")
    add_config(parser, CalibrationConfig, "how ranges are chosen, for .ranges files", skip=skip)


def _run(args: argparse.Namespace) -> Result:
    path = args.file
    if path.suffix == ".onnx":
        return _inspect_model(path, args)
    if path.suffix == ".ranges":
        return _inspect_ranges(path, args)
    if path.suffix == ".qrt":
        return _inspect_engine(path, args)
    raise UsageError(
        f"cannot tell what '{path}' is", got=f"suffix '{path.suffix}'", expected=".onnx, .ranges or .qrt"
    )


def _inspect_model(path: Path, args: argparse.Namespace) -> Result:
    from quantrt.model.load import load_model
    from quantrt.report.inspect_model import describe_model, show_model

    data = describe_model(load_model(path))
    return Result(data, lambda: show_model(data, layers=args.layers))


def _inspect_ranges(path: Path, args: argparse.Namespace) -> Result:
    from quantrt.calibrate.stats import load_stats
    from quantrt.report.inspect_ranges import describe_ranges, show_ranges

    data = describe_ranges(load_stats(path), path, read_config(args, CalibrationConfig))
    return Result(data, lambda: show_ranges(data, layers=args.layers))


def _inspect_engine(path: Path, args: argparse.Namespace) -> Result:
    from quantrt.plan.serialize import load_plan
    from quantrt.report.inspect_engine import describe_engine, show_engine

    data = describe_engine(load_plan(path), path)
    return Result(data, lambda: show_engine(data, layers=args.layers))


COMMAND = Command(
    name="inspect",
    summary="show what is in a model, a ranges file or an engine",
    details="A model: inputs, outputs, operators, parameters, what canonicalization did. A ranges file: the "
    "range of each tensor. An engine: why it is what it is, precisions by layer, candidates, size, "
    "device.",
    examples=(
        ("a model", "quantrt inspect model.onnx"),
        ("why is each layer int8 or float?", "quantrt inspect model.qrt --layers"),
        ("what would another method choose?", "quantrt inspect model.ranges --layers --method entropy"),
    ),
    add_arguments=_add_arguments,
    run=_run,
)
