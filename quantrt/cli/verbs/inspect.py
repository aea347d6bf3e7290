# SPDX-License-Identifier: Apache-2.0
"""`quantrt inspect`: what is in a model, a ranges file, a calibration cache or an engine."""

from __future__ import annotations

import argparse
from pathlib import Path

from quantrt.cli.command import Command, Result
from quantrt.cli.options.options import add_config, read_config
from quantrt.config import CalibrationConfig
from quantrt.errors import UsageError

__all__ = ["COMMAND"]


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "file",
        type=Path,
        metavar="FILE",
        help="model (.onnx), ranges (.ranges), engine (.qrt) or calibration cache (.cache)",
    )
    parser.add_argument(
        "--model", type=Path, metavar="MODEL.onnx", help="what a calibration cache means for this model"
    )
    parser.add_argument(
        "--lint", choices=("tensorrt",), help="check a model's Q/DQ nodes against the rules of a runtime"
    )
    parser.add_argument(
        "--times",
        type=Path,
        metavar="ENGINE.qrt",
        help="with --model: what missing ranges cost, by the layers that were timed for this engine",
    )
    parser.add_argument("--layers", action="store_true", help="list every layer or tensor, with the reason")
    skip = ("max_samples", "batch_size", "calib_random", "seed", "memory_mb")
    add_config(parser, CalibrationConfig, "how ranges are chosen, for .ranges files", skip=skip)


def _run(args: argparse.Namespace) -> Result:
    path = args.file
    if args.model is not None and not _is_cache(path):
        raise UsageError("--model belongs to a calibration cache", got=f"'{path}'", expected="X.cache")
    if args.lint is not None and path.suffix != ".onnx":
        raise UsageError("--lint is for models with Q/DQ nodes", got=f"'{path}'", expected="MODEL.onnx")
    if args.times is not None and args.model is None:
        raise UsageError(
            "--times says what ranges cost that a calibration cache lacks for a model",
            hint="--model MODEL.onnx beside it",
        )
    if _is_cache(path):
        return _inspect_cache(path, args)
    if path.suffix == ".onnx":
        return _inspect_model(path, args)
    if path.suffix == ".ranges":
        return _inspect_ranges(path, args)
    if path.suffix == ".qrt":
        return _inspect_engine(path, args)
    raise UsageError(
        f"cannot tell what '{path}' is",
        got=f"suffix '{path.suffix}'",
        expected=".onnx, .ranges, .qrt, .cache or .json",
    )


def _is_cache(path: Path) -> bool:
    """Whether a file is a calibration cache: by its suffix, or for one that is unknown by how it begins."""
    if path.suffix in (".cache", ".flatbuffers", ".json"):
        return True
    if path.suffix in (".onnx", ".ranges", ".qrt") or not path.is_file():
        return False
    with path.open("rb") as file:
        return file.read(4) == b"TRT-"


def _inspect_model(path: Path, args: argparse.Namespace) -> Result:
    from quantrt.model.load import load_model
    from quantrt.report.inspect.lint import describe_lint, show_lint
    from quantrt.report.inspect.model import describe_model, show_model

    if args.lint is not None:
        lint = describe_lint(path, args.lint)
        return Result(lint, lambda: show_lint(lint, layers=args.layers), exit_code=0 if lint["passed"] else 1)
    data = describe_model(load_model(path))
    return Result(data, lambda: show_model(data, layers=args.layers))


def _inspect_ranges(path: Path, args: argparse.Namespace) -> Result:
    from quantrt.calibrate.stats import load_stats
    from quantrt.report.ranges.file import describe_ranges, show_ranges

    data = describe_ranges(load_stats(path), path, read_config(args, CalibrationConfig))
    return Result(data, lambda: show_ranges(data, layers=args.layers))


def _inspect_cache(path: Path, args: argparse.Namespace) -> Result:
    from quantrt.calibrate.caches.trt_cache import read_cache
    from quantrt.report.built.work_shares import work_shares
    from quantrt.report.ranges.cache import describe_cache, show_cache

    cache, match, shares, times = read_cache(path), None, None, None
    if args.model is not None:
        from quantrt.model.load import load_model
        from quantrt.plan.serialize import load_plan
        from quantrt.quantize.cache_match import match_cache
        from quantrt.quantize.targets import TARGETS
        from quantrt.quantize.targets.cuda import CUDA
        from quantrt.report.built.missing_times import missing_times_of

        model = load_model(args.model)
        match, shares = match_cache(model, cache, (*TARGETS, CUDA)), work_shares(model)
        times = {} if args.times is None else missing_times_of(load_plan(args.times), match.missing, model)
    data = describe_cache(cache, path, match, shares, times)
    return Result(data, lambda: show_cache(data, layers=args.layers))


def _inspect_engine(path: Path, args: argparse.Namespace) -> Result:
    from quantrt.plan.serialize import load_plan
    from quantrt.report.inspect.engine import describe_engine, show_engine

    data = describe_engine(load_plan(path), path)
    return Result(data, lambda: show_engine(data, layers=args.layers))


COMMAND = Command(
    name="inspect",
    summary="show what is in a model, a ranges file, a calibration cache or an engine",
    details="A model: inputs, outputs, operators, parameters, what canonicalization did. A ranges file: the "
    "range of each tensor. A calibration cache: its scales, and with --model which of them apply. An "
    "engine: why it is what it is, precisions by layer, candidates, size, "
    "device.",
    examples=(
        ("a model", "quantrt inspect model.onnx"),
        ("why is each layer int8 or float?", "quantrt inspect model.qrt --layers"),
        ("would TensorRT take these Q/DQ nodes?", "quantrt inspect model.qdq.onnx --lint tensorrt"),
        ("does this cache fit this model?", "quantrt inspect calibration.cache --model model.onnx"),
        ("what would another method choose?", "quantrt inspect model.ranges --layers --method entropy"),
    ),
    add_arguments=_add_arguments,
    run=_run,
)
