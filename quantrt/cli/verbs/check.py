# SPDX-License-Identifier: Apache-2.0
"""`quantrt check`: what will hurt, and which kernels a model would have on a GPU that need not be here."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from quantrt.cli.command import Command, Result
from quantrt.cli.options.data import DATA_HELP, add_preprocess, data_source, open_data
from quantrt.cli.options.options import add_config, read_config
from quantrt.cli.options.ranges import read_stats
from quantrt.cli.options.shapes import given_shapes, parse_shape, usual_shapes, with_shapes
from quantrt.config import QuantizeConfig
from quantrt.dtypes import CODE_PRECISIONS
from quantrt.errors import DeviceError, UsageError

if TYPE_CHECKING:
    from quantrt.gpu import GpuFacts
    from quantrt.model.model import Model
    from quantrt.tactics.cuda.survey import Survey

__all__ = ["COMMAND"]

ALL = "all"
CPU = "cpu"

SAMPLES = 16
"""By default: channels that are outliers are so in every sample."""


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", type=Path, metavar="MODEL", help="model (.onnx)")
    parser.add_argument(
        "--device",
        default=CPU,
        metavar="DEVICE",
        help="cpu: only what will hurt on a CPU (the default); a GPU, such as t4, a10, rtx4090, h100: "
        "its kernels too; all: a line for every GPU known",
    )
    parser.add_argument(
        "--precision",
        choices=(*CODE_PRECISIONS, "fp16", "fp32"),
        default="int8",
        help="what to check for; int8 and fp8 keep in fp16 what the rules leave float (default: int8)",
    )
    parser.add_argument(
        "--shape",
        action="append",
        type=parse_shape,
        metavar="NAME=1x384",
        help="shape of an input with free sizes, repeatable (default: a batch of 1, pictures of 224x224, "
        "128 of anything else)",
    )
    known = parser.add_argument_group("what is known of values; without any, the graph alone is looked at")
    known.add_argument("--calib-data", type=data_source, metavar="P", help=f"samples: {DATA_HELP}")
    known.add_argument("--ranges", type=Path, metavar="X.ranges", help="result of `quantrt calibrate`")
    known.add_argument(
        "--samples", type=int, default=SAMPLES, metavar="N", help=f"samples that are run (default: {SAMPLES})"
    )
    add_preprocess(known)
    add_config(
        parser, QuantizeConfig, "quantization that is planned", skip=("bias_correction", "equalization")
    )


def _run(args: argparse.Namespace) -> Result:
    if args.samples < 1:
        raise UsageError("cannot look at so few samples", got=str(args.samples), expected="--samples 16")
    is_cpu = args.device.lower() == CPU
    if is_cpu and args.precision not in ("int8", "fp32"):
        hint = f"--precision int8, or --device {ALL} for kernels of GPUs"
        raise UsageError(f"no library here computes in {args.precision} on a CPU", hint=hint)
    if is_cpu and args.shape:
        raise UsageError("shapes decide nothing on a CPU", got="--shape", expected=f"--device {ALL} or a GPU")
    from quantrt.gpu import GPUS, gpu_named
    from quantrt.model.load import load_model
    from quantrt.report.check.trouble import show_trouble

    gpus = GPUS if args.device.lower() in (ALL, CPU) else (gpu_named(args.device),)
    model = load_model(args.model)
    survey = None if is_cpu else _survey(args, model, gpus)
    data = {"kind": "check", "path": str(args.model), "precision": args.precision}
    data |= survey or {"devices": []}
    data["trouble"] = trouble = _trouble(args, model, is_gpu=not is_cpu)

    def show() -> None:
        if survey is not None:
            from quantrt.report.check.survey import show_survey

            show_survey(data)
        show_trouble(trouble)

    return Result(data, show)


def _survey(args: argparse.Namespace, model: Model, gpus: Sequence[GpuFacts]) -> dict[str, Any]:
    """Which kernels there are."""
    chosen = usual_shapes(model.inputs) | given_shapes(args.shape)
    specs = with_shapes(model.inputs, chosen, str(args.model), otherwise="")
    shapes = {
        spec.name: tuple(size if isinstance(size, int) else 1 for size in spec.shape or ()) for spec in specs
    }
    survey = _import_survey()
    from quantrt.report.check.survey import describe_survey

    found = survey(model, shapes, gpus, precision=args.precision)
    return describe_survey(found, path=str(args.model), precision=args.precision, shapes=shapes)


def _trouble(args: argparse.Namespace, model: Model, *, is_gpu: bool) -> dict[str, Any]:
    """What will hurt."""
    from quantrt.quantize.placement.obstacle import is_quantized
    from quantrt.quantize.targets.cuda import CUDA
    from quantrt.quantize.targets.cuda_fp8 import CUDA_FP8
    from quantrt.quantize.targets.openvino import OPENVINO
    from quantrt.report.check.trouble import describe_trouble
    from quantrt.report.progress import progress_bars
    from quantrt.trouble.find import find_trouble
    from quantrt.trouble.scene import make_scene

    target = OPENVINO if not is_gpu else CUDA_FP8 if args.precision == "fp8" else CUDA
    if is_quantized(model.graph.graph):
        return describe_trouble((), target=target.name, seen="nothing: the model is quantized already")
    samples = None
    if args.calib_data is not None:
        samples = open_data(args.calib_data, model.inputs, preprocess=args.preprocess)
    with progress_bars(quiet=args.quiet) as bars:
        scene = make_scene(
            model,
            target,
            is_gpu=is_gpu,
            config=read_config(args, QuantizeConfig),
            data=samples,
            stats=None if args.ranges is None else read_stats(args.ranges, model),
            samples=args.samples,
            on_stage=lambda stage, done, total: bars.counter(stage, "samples")(done, total),
        )
    seen = "ranges alone" if args.ranges is not None else "the graph alone: --calib-data P tells more"
    if samples is not None:
        seen = f"{args.samples} samples at most"
    return describe_trouble(find_trouble(scene), target=target.name, seen=seen)


def _import_survey() -> Callable[..., Survey]:
    """The function, or a typed error without the packages of the CUDA engine."""
    try:
        from quantrt.tactics.cuda.survey import survey
    except ModuleNotFoundError as error:
        if error.name not in ("torch", "triton"):
            raise
        raise DeviceError(
            f"cannot list kernels: the package '{error.name}' is not installed",
            hint="pip install 'quantrt[cuda]'",
        ) from error
    return survey


COMMAND = Command(
    name="check",
    summary="what will hurt, and which kernels a GPU would have, here or not",
    details="What will cost accuracy or time in 8 bits or fp16, with the layers, the figure that shows it "
    "and what helps; with samples it sees more. For a GPU, for every region of the model: which kernels are "
    "legal there, or why it would fall back to something slower. Needs no GPU. Nothing is built or timed.",
    examples=(
        ("what will hurt on a CPU", "quantrt check model.onnx --calib-data calib.npz"),
        ("every GPU known, a line each", "quantrt check model.onnx --device all"),
        ("one GPU, region by region", "quantrt check model.onnx --device t4"),
        ("why, in a script", "quantrt check model.onnx --device t4 --json"),
    ),
    add_arguments=_add_arguments,
    run=_run,
)
