# SPDX-License-Identifier: Apache-2.0
"""`quantrt explain`: why an engine takes the time and the space that it takes."""

from __future__ import annotations

import argparse
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from quantrt.cli.command import Command, Result
from quantrt.cli.options.timed_inputs import add_timed_inputs, timed_inputs
from quantrt.dtypes import CODE_PRECISIONS
from quantrt.errors import DeviceError, UsageError

if TYPE_CHECKING:
    from quantrt.plan.plan import Plan
    from quantrt.report.explain.describe import Evidence

__all__ = ["COMMAND"]


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("engine", type=Path, metavar="ENGINE.qrt", help="the engine to explain")
    parser.add_argument(
        "--layer",
        metavar="GLOB",
        help="only layers of this name, or that compute a node of this name: all that is known of them",
    )
    parser.add_argument("--all", action="store_true", help="list every layer, not only the longest")
    parser.add_argument(
        "--what-if",
        choices=(*CODE_PRECISIONS, "fp16", "bf16", "fp32"),
        help="predict the layers, or those of --layer, in this precision",
    )
    parser.add_argument(
        "--against",
        type=Path,
        metavar="OTHER.qrt",
        help="another engine of the same model, timed too: which layers are slower, what conversions cost",
    )
    parser.add_argument(
        "--no-run", action="store_true", help="time nothing here: what an engine for a GPU holds of its build"
    )
    add_timed_inputs(parser)


def _run(args: argparse.Namespace) -> Result:
    from quantrt.plan.serialize import load_plan
    from quantrt.report.explain.describe import describe_explanation
    from quantrt.report.explain.show import show_explanation

    if args.engine.suffix != ".qrt":
        raise UsageError(
            f"cannot explain '{args.engine}'", got=f"suffix '{args.engine.suffix}'", expected=".qrt",
            hint=f"quantrt inspect {args.engine}" if args.engine.suffix == ".onnx" else None,
        )  # fmt: skip
    plan = load_plan(args.engine)
    evidence = _gather(args, plan)
    data = describe_explanation(evidence, pattern=args.layer, what_if=args.what_if)
    return Result(data, lambda: show_explanation(data, with_all=args.all))


def _gather(args: argparse.Namespace, plan: Plan) -> Evidence:
    """From runs where they are possible; else an engine for a GPU from its file."""
    from dataclasses import replace

    from quantrt.report.built.chosen_shapes import chosen_shapes
    from quantrt.report.engine_layers.same_model import check_same_model
    from quantrt.report.explain.gather import gather_against, gather_from_file, gather_from_runs
    from quantrt.report.progress import progress_bars
    from quantrt.runtime.engine import load

    given = [flag for flag, value in (("--against", args.against), ("--data", args.data),
                                      ("--shape", args.shape), ("--batch", args.batch)) if value]  # fmt: skip
    if args.no_run and given:
        raise UsageError(
            f"{given[0]} is for running the engine, and it is not to be run", hint="without --no-run"
        )
    if args.no_run and plan.model.library != "cuda":
        raise UsageError(
            f"cannot explain '{args.engine}' without running it: an engine for a CPU holds no times",
            hint="without --no-run",
        )
    if args.no_run or (args.against is None and not _can_run(plan)):
        return gather_from_file(plan, args.engine)
    with ExitStack() as stack, progress_bars(quiet=args.quiet) as bars:
        step = bars.counter("explaining", "engines")
        count = 2 if args.against else 1
        engine = stack.enter_context(load(args.engine))
        other = stack.enter_context(load(args.against)) if args.against else None
        if other is not None:
            check_same_model(plan, str(args.engine), other.plan, str(args.against))
        inputs, _ = timed_inputs(args, engine.inputs, str(args.engine), chosen_shapes(engine.plan))
        step(0, count)
        evidence = gather_from_runs(engine, args.engine, inputs)
        step(1, count)
        if other is not None:
            evidence = replace(evidence, against=gather_against(other, args.against, inputs))
            step(2, count)
    return evidence


def _can_run(plan: Plan) -> bool:
    """Whether there is a GPU for an engine for a GPU; what a CPU lacks is an error when it is opened."""
    from quantrt.runtime.executor import check_library

    if plan.model.library != "cuda":
        return True
    try:
        check_library("cuda")
    except DeviceError:
        return False
    return True


COMMAND = Command(
    name="explain",
    summary="why an engine takes its time and its space, layer by layer",
    details="For every layer: the nodes it computes, its precision and why, the kernel and the runners-up, "
    "its time, how much of what the device could do it reaches, and what binds it. For the whole: time by "
    "precision and by cause, the cheapest changes with what they should gain, and what the file's bytes "
    "are. An engine for a GPU that is not here is explained from what its build measured.",
    examples=(
        ("where does the time go, and what would help?", "quantrt explain model.qrt"),
        ("everything about some layers", "quantrt explain model.qrt --layer '/blocks/*/conv1/*'"),
        ("what if a layer were float?", "quantrt explain model.qrt --layer /classifier/Gemm --what-if fp32"),
        ("why is int8 slower here?", "quantrt explain int8.qrt --against float.qrt"),
    ),
    add_arguments=_add_arguments,
    run=_run,
)
