# SPDX-License-Identifier: Apache-2.0
"""`quantrt bench`: latency of engines and models, interleaved when there are several."""

from __future__ import annotations

import argparse
import math
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from quantrt.cli.command import Command, Result
from quantrt.cli.options.options import add_config, read_config
from quantrt.cli.options.shapes import shapes_for
from quantrt.cli.options.timed_inputs import add_timed_inputs, timed_inputs
from quantrt.config import BenchConfig, DeviceConfig
from quantrt.errors import UsageError

if TYPE_CHECKING:
    from quantrt.report.subject import Subject

__all__ = ["COMMAND"]


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "files",
        type=Path,
        nargs="+",
        metavar="FILE",
        help="engines (.qrt) or models (.onnx); the first is the base",
    )
    parser.add_argument(
        "--min-speed",
        type=float,
        metavar="R",
        help="fail (exit code 1) where a file is surely less than R times as fast as the first: the whole "
        "99 %% interval of the ratio is below",
    )
    add_timed_inputs(parser, with_batch=False)
    add_config(parser, BenchConfig, "timing")
    add_config(
        parser, DeviceConfig, "device, for .onnx files; an engine keeps its own", skip=("device", "libraries")
    )


def _run(args: argparse.Namespace) -> Result:
    from quantrt.report.bench import hold_to, measure, show_bench
    from quantrt.report.progress import progress_bars
    from quantrt.report.subject import open_subject

    _check_limit(args)
    config, device = read_config(args, BenchConfig), read_config(args, DeviceConfig)
    with ExitStack() as stack:
        subjects = [stack.enter_context(open_subject(path, threads=device.threads)) for path in args.files]
        shapes = _chosen_shapes(subjects)
        inputs, batches = zip(
            *(
                timed_inputs(args, item.inputs, item.name, shapes_for(item.inputs, shapes))
                for item in subjects
            ),
            strict=True,
        )
        if len(set(batches)) > 1:
            sizes = ", ".join(f"{size} for '{s.name}'" for s, size in zip(subjects, batches, strict=True))
            raise UsageError("cannot compare latencies of different batch sizes", got=sizes, hint="--batch N")
        with progress_bars(quiet=args.quiet) as bars:
            on_progress = bars.counter("timing", "ms per file")
            data = measure(subjects, inputs, config, batch=batches[0], on_progress=on_progress)
    if args.min_speed is not None:
        data = hold_to(data, args.min_speed)
    return Result(data, lambda: show_bench(data), exit_code=0 if data.get("passed", True) else 1)


def _chosen_shapes(subjects: Sequence[Subject]) -> Mapping[str, tuple[int, ...]]:
    """What the first engine was chosen at, at which all are timed; none without an engine."""
    from quantrt.report.built.chosen_shapes import chosen_shapes

    plans = (item.plan for item in subjects if item.plan is not None)
    return next((found for plan in plans if (found := chosen_shapes(plan))), {})


def _check_limit(args: argparse.Namespace) -> None:
    if args.min_speed is None:
        return
    if len(args.files) < 2:
        raise UsageError(
            "cannot hold one file to --min-speed: it is the speed against the first of several",
            hint=f"quantrt bench BASE {args.files[0]} --min-speed {args.min_speed:g}",
        )
    if not (args.min_speed > 0 and math.isfinite(args.min_speed)):
        raise UsageError(
            f"cannot use --min-speed {args.min_speed:g}", expected="a number above 0, such as 0.95"
        )


COMMAND = Command(
    name="bench",
    summary="measure latency; several files are timed interleaved",
    details="Time whole calls, inputs in to outputs out. Several files take turns, so that a change of the "
    "machine's speed hits all of them, and each is given as a ratio to the first, with a confidence "
    "interval.",
    examples=(
        ("one engine", "quantrt bench model.qrt"),
        ("how much faster than the float model?", "quantrt bench model.onnx model.qrt"),
        (
            "a model with free sizes",
            "quantrt bench model.onnx --shape input_ids=1x384 --shape attention_mask=1x384",
        ),
        (
            "fail where the new one is surely more than 5 % slower",
            "quantrt bench old.qrt new.qrt --min-speed 0.95",
        ),
        ("batches of eight, real data", "quantrt bench model.onnx model.qrt --batch 8 --data valid.npz"),
    ),
    add_arguments=_add_arguments,
    run=_run,
)
