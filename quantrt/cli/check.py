# SPDX-License-Identifier: Apache-2.0
"""`quantrt check`: which kernels a model would have on a GPU that need not be here."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from quantrt.cli.command import Command, Result
from quantrt.cli.shapes import given_shapes, parse_shape, with_shapes
from quantrt.dtypes import CODE_PRECISIONS
from quantrt.errors import DeviceError

if TYPE_CHECKING:
    from quantrt.tactics.cuda.survey import Survey

__all__ = ["COMMAND"]

ALL = "all"


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", type=Path, metavar="MODEL", help="model (.onnx)")
    parser.add_argument(
        "--device",
        default=ALL,
        metavar="GPU",
        help="name of a GPU, such as t4, a10, rtx4090, h100; all: one line for every GPU known (the default)",
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
        help="shape of an input with free sizes, repeatable; a free batch is 1",
    )


def _run(args: argparse.Namespace) -> Result:
    from quantrt.gpu import GPUS, gpu_named
    from quantrt.model.load import load_model

    gpus = GPUS if args.device.lower() == ALL else (gpu_named(args.device),)
    model = load_model(args.model)
    specs = with_shapes(model.inputs, given_shapes(args.shape), str(args.model), otherwise="")
    shapes = {
        spec.name: tuple(size if isinstance(size, int) else 1 for size in spec.shape or ()) for spec in specs
    }
    survey = _import_survey()
    from quantrt.report.check_device import describe_survey, show_survey

    found = survey(model, shapes, gpus, precision=args.precision)
    data = describe_survey(found, path=str(args.model), precision=args.precision, shapes=shapes)
    return Result(data, lambda: show_survey(data))


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
    summary="which kernels a model would have on a GPU, here or not",
    details="For every region of the model: which kernels are legal on the GPU, or why it would fall back to "
    "something slower. Needs no GPU and no data; nothing is timed.",
    examples=(
        ("every GPU known, a line each", "quantrt check model.onnx"),
        ("one GPU, region by region", "quantrt check model.onnx --device t4"),
        ("why, in a script", "quantrt check model.onnx --device t4 --json"),
    ),
    add_arguments=_add_arguments,
    run=_run,
)
