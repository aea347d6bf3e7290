# SPDX-License-Identifier: Apache-2.0
"""`quantrt build`: ONNX model -> verified engine."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from quantrt.cli.command import Command, Result
from quantrt.cli.options.data import add_preprocess, data_source, find_local_modules, open_data
from quantrt.cli.options.options import add_config, read_config
from quantrt.cli.options.paths import check_output
from quantrt.cli.options.ranges import add_sources, given_sources, read_stats
from quantrt.cli.options.recipe import add_recipe, fill_from_recipe
from quantrt.config import (
    AssignConfig,
    BenchConfig,
    BindingConfig,
    Budget,
    BuildConfig,
    CalibrationConfig,
    ConstraintConfig,
    CudaConfig,
    DeviceConfig,
    QuantizeConfig,
    ReportConfig,
)
from quantrt.dtypes import CODE_PRECISIONS
from quantrt.errors import DeviceError, UsageError
from quantrt.ir.atomic import check_apart

if TYPE_CHECKING:
    from quantrt.model.model import Model
    from quantrt.plan.plan import Plan

__all__ = ["COMMAND"]


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    """Model, precisions, data, output, and one group per stage."""
    parser.add_argument("model", type=Path, metavar="MODEL.onnx", help="the float model")
    parser.add_argument(
        "-o", "--output", type=Path, required=True, metavar="ENGINE.qrt", help="engine file to write"
    )
    parser.add_argument(
        "--report", type=Path, metavar="REPORT.json", help="also write the build report as JSON"
    )
    precisions = parser.add_argument_group("precisions (fp32 is always a candidate)")
    precisions.add_argument("--int8", action="store_true", help="try int8; needs data, ranges or a cache")
    precisions.add_argument(
        "--fp8",
        action="store_true",
        help="try fp8 (E4M3), on a GPU from Ada (8.9) on; needs what --int8 does",
    )
    precisions.add_argument(
        "--fp16", action="store_true", help="try float16, on a GPU; --int8 and --fp8 bring it there"
    )
    precisions.add_argument(
        "--bf16", action="store_true", help="try bfloat16 for what is in no codes, in place of fp16 on a GPU"
    )
    data = parser.add_argument_group("data")
    add_sources(data)
    data.add_argument(
        "--valid-data", type=data_source, metavar="P", help="validation data, to measure the drop"
    )
    data.add_argument(
        "--labels", metavar="L", help="labels of --valid-data: a .csv or .npy file, 'filename' or 'folder'"
    )
    add_preprocess(data)
    add_recipe(parser)
    add_config(parser, CalibrationConfig, "calibration")
    add_config(parser, QuantizeConfig, "quantization")
    add_config(parser, Budget, "accuracy budget")
    add_config(parser, AssignConfig, "mixed precision")
    add_config(parser, BindingConfig, "inputs and outputs (by default as the model has them)")
    add_config(parser, ConstraintConfig, "constraints")
    add_config(parser, DeviceConfig, "device")
    add_config(parser, CudaConfig, "kernels on a GPU (--device cuda)")
    add_config(parser, BenchConfig, "timing of the candidates")
    add_config(parser, ReportConfig, "what the engine keeps for reports")


def _run(args: argparse.Namespace) -> Result:
    """Build the engine, save it, show its report."""
    check_output(args.output, ".qrt")
    if args.report is not None:
        check_output(args.report, ".json")
        check_apart([("--report ", args.report)], [Path(args.tables)] if args.tables else ())
    _take_recipe(args)
    config = _read_build_config(args)
    _check_data(args)
    plan = _build(args, config)
    if args.report is not None:
        _write_report(plan, args.report)
    return _result(plan, args.output)


def _take_recipe(args: argparse.Namespace) -> None:
    """Fill what is not given from the recipe, precision and device among it."""
    recipe = fill_from_recipe(args)
    if recipe is None:
        return
    if recipe.target == "tensorrt":
        raise UsageError(
            f"recipe '{recipe.name}' is for models that TensorRT builds",
            expected="a recipe for the engines of QuantRT",
            hint=f"quantrt quantize {args.model} --recipe {recipe.name} -o model.trt.onnx",
        )
    if args.weights != "int4" and not any(getattr(args, name) for name in CODE_PRECISIONS):
        setattr(args, recipe.precision, True)


def _read_build_config(args: argparse.Namespace) -> BuildConfig:
    wanted = {precision for precision in (*CODE_PRECISIONS, "fp16", "bf16") if getattr(args, precision)}
    return BuildConfig(
        precisions=frozenset({"fp32", *wanted}),
        calibration=read_config(args, CalibrationConfig),
        quantize=read_config(args, QuantizeConfig),
        device=read_config(args, DeviceConfig),
        cuda=read_config(args, CudaConfig),
        budget=read_config(args, Budget),
        assign=read_config(args, AssignConfig),
        bench=read_config(args, BenchConfig),
        report=read_config(args, ReportConfig),
        bindings=read_config(args, BindingConfig),
        constraints=read_config(args, ConstraintConfig),
    )


def _check_data(args: argparse.Namespace) -> None:
    """What --int8 and --fp8 need is there, and nothing is given that would go unused."""
    given = given_sources(args)
    asked = [name for name in CODE_PRECISIONS if getattr(args, name)]
    if asked and not given and args.activations != "per-token":
        raise UsageError(
            f"cannot build an {asked[0]} engine without calibration",
            expected="--calib-data, --ranges, --calib-cache or --calib-random",
            hint=f"--calib-data calib.npz, --activations per-token of a transformer, no --{asked[0]} for a "
            "model that is quantized already, or --calib-random to measure speed only",
        )
    if args.activations == "per-token" and not asked:
        raise UsageError(
            "scales per token are of int8 and fp8 only, and neither was asked for",
            hint="--int8 --activations per-token ...",
        )
    if given and not asked and args.weights != "int4":
        raise UsageError(
            f"{given[0]} is used by int8 and fp8 only, and neither was asked for",
            hint=f"--int8 {given[0]} ...",
        )
    if args.labels is not None and args.valid_data is None:
        raise UsageError("--labels belongs to validation data, and none was given", hint="--valid-data P")


def _is_elsewhere(config: BuildConfig) -> bool:
    """Whether the GPU that is named is not here; one that is neither here nor named is an error."""
    if config.device.device != "cuda":
        return False
    from quantrt.runtime.executor import check_library

    try:
        check_library("cuda", compiles=True)  # before a large model and its data are read
    except DeviceError:
        if not (config.cuda.targets or config.cuda.gpu):
            raise
        return True
    return False


def _build(args: argparse.Namespace, config: BuildConfig) -> Plan:
    """Build for this machine, or for GPUs that are not here, and save."""
    from quantrt.build import build
    from quantrt.cross_build import cross_build
    from quantrt.model.load import load_model
    from quantrt.plan.serialize import save_plan
    from quantrt.report.progress import progress_bars

    is_elsewhere = _is_elsewhere(config)  # an error before a large model is read
    model = load_model(args.model)
    data = _open_data(args, model)
    with progress_bars(quiet=args.quiet) as bars:
        if is_elsewhere:
            plan = cross_build(model, config=config, **data, on_event=bars.on_event)
        else:
            with build(model, config=config, **data, on_event=bars.on_event) as engine:
                plan = engine.plan
    save_plan(plan, args.output)
    return plan


def _open_data(args: argparse.Namespace, model: Model) -> dict[str, Any]:
    """Calibration and validation data and ranges, as keyword arguments of a build."""
    from quantrt.calibrate.caches.trt_cache import read_cache

    stats = read_stats(args.ranges, model) if args.ranges else None
    cache = read_cache(args.calib_cache) if args.calib_cache else None
    calibration = validation = None
    if args.calib_data is not None:
        calibration = open_data(args.calib_data, model.inputs, preprocess=args.preprocess)
    if args.valid_data is not None:
        validation = open_data(args.valid_data, model.inputs, preprocess=args.preprocess, labels=args.labels)
    find_local_modules(args.metric)
    return {
        "calibration": calibration,
        "validation": validation,
        "stats": stats,
        "calibration_cache": cache,
    }


def _write_report(plan: Plan, path: Path) -> None:
    from quantrt.cli.json_text import json_text
    from quantrt.cli.write import write_text

    write_text(path, json_text(plan.report) + "\n")


def _result(plan: Plan, path: Path) -> Result:
    from quantrt.report.inspect.engine import describe_engine, show_engine

    data = describe_engine(plan, path)
    return Result(data, lambda: show_engine(data))


COMMAND = Command(
    name="build",
    summary="make a verified engine of an ONNX model",
    details="Calibrate, quantize, time every candidate on this machine, check the accuracy against the float "
    "model, and write the fastest engine that is inside the budget. When int8 is not faster, or "
    "loses too much, the float engine is written and the report says why.",
    examples=(
        (
            "int8 with measured accuracy, at most 1 % of top-1 lost",
            "quantrt build model.onnx --int8 --calib-data calib.npz --valid-data valid.npz -o model.qrt",
        ),
        (
            "images as they are on disk",
            "quantrt build model.onnx --int8 --calib-data photos/ "
            "--preprocess 'resize=256,crop=224,mean=imagenet' -o model.qrt",
        ),
        (
            "keep the head float, allow half a percent",
            "quantrt build model.onnx --int8 --calib-data calib.npz --valid-data valid.npz "
            "--exclude '/head/*' --max-drop 0.005 -o model.qrt",
        ),
        (
            "on the scales of a TensorRT calibration cache",
            "quantrt build model.onnx --int8 --calib-cache calibration.cache --valid-data valid.npz "
            "-o model.qrt",
        ),
        (
            "speed only: the engine is marked uncalibrated",
            "quantrt build model.onnx --int8 --calib-random -o model.qrt",
        ),
        (
            "for GPUs that are not here, untimed; batches of 1 to 32",
            "quantrt build model.onnx --int8 --calib-data calib.npz --device cuda --target sm_80,sm_90 "
            "--shapes images=1x3x224x224:8x3x224x224:32x3x224x224 -o model.qrt",
        ),
    ),
    add_arguments=_add_arguments,
    run=_run,
)
