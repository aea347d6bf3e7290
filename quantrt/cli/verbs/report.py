# SPDX-License-Identifier: Apache-2.0
"""`quantrt report`: one HTML file about an engine, or about two side by side."""

from __future__ import annotations

import argparse
import logging
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from quantrt.cli.command import Command, Result
from quantrt.cli.options.options import add_config, read_config
from quantrt.cli.options.paths import check_output
from quantrt.cli.options.timed_inputs import add_timed_inputs, timed_inputs
from quantrt.config import LayerTimingConfig
from quantrt.errors import DeviceError, UsageError

if TYPE_CHECKING:
    import numpy as np

    from quantrt.plan.plan import Plan
    from quantrt.report.report import Report, Subject

__all__ = ["COMMAND"]

log = logging.getLogger(__name__)


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("engine", type=Path, metavar="ENGINE.qrt", help="the engine")
    parser.add_argument(
        "other", type=Path, nargs="?", metavar="OTHER.qrt", help="another one of the same model, beside it"
    )
    parser.add_argument(
        "-o", "--output", type=Path, required=True, metavar="REPORT.html", help="page to write"
    )
    timing = parser.add_argument_group("times of layers")
    timing.add_argument("--no-run", action="store_true", help="do not run the engines on this machine")
    add_timed_inputs(timing)
    add_config(parser, LayerTimingConfig, "how often")


def _run(args: argparse.Namespace) -> Result:
    from quantrt.plan.serialize import load_plan
    from quantrt.report.progress import progress_bars
    from quantrt.report.report import report_subjects

    check_output(args.output, ".html")
    if args.no_run and (args.data is not None or args.shape or args.batch):
        raise UsageError("inputs are for running the engines, and they are not to be run", hint="no --no-run")
    paths = [path for path in (args.engine, args.other) if path is not None]
    plans = [load_plan(path) for path in paths]
    with ExitStack() as stack, progress_bars(quiet=args.quiet) as bars:
        subjects = [_open(path, plan, args, stack) for path, plan in zip(paths, plans, strict=True)]
        inputs = None if all(subject.why_not for subject in subjects) else _inputs(args, plans[0])
        inputs_are = "random values" if args.data is None else f"the first of {args.data}"
        config = read_config(args, LayerTimingConfig)
        on_progress = bars.counter("timing layers", "engines")
        report = report_subjects(subjects, inputs, inputs_are, config, on_progress)
    report.save(args.output)
    return Result(report.data, lambda: _show(report, args.output))


def _open(path: Path, plan: Plan, args: argparse.Namespace, stack: ExitStack) -> Subject:
    """The engine, where it may run and can; else what its file says, and why it does not run."""
    from quantrt.report.report import Subject
    from quantrt.runtime.engine import load

    size_bytes = path.stat().st_size
    if args.no_run:
        return Subject(plan, path.name, size_bytes, "the engine was not to be run (--no-run)")
    try:
        return Subject(stack.enter_context(load(path)), path.name, size_bytes)
    except DeviceError as error:
        log.warning("%s is described without being run: %s", path, error.message)
        return Subject(plan, path.name, size_bytes, error.message)


def _inputs(args: argparse.Namespace, plan: Plan) -> dict[str, np.ndarray]:
    """The first samples of --data, or random values."""
    from quantrt.report.built.chosen_shapes import chosen_shapes

    otherwise = ", --data with real inputs, or --no-run"
    shapes = chosen_shapes(plan)
    return timed_inputs(args, plan.inputs, str(args.engine), shapes, otherwise=otherwise)[0]


def _show(report: Report, path: Path) -> None:
    from quantrt.report.quantities import bytes_text
    from quantrt.report.tables import show

    show(report.__rich__(), "", f"wrote {path}, {bytes_text(path.stat().st_size)}: open it in a browser")


COMMAND = Command(
    name="report",
    summary="write an HTML page about an engine, or about two side by side",
    details="One file that loads nothing from anywhere: the verdict and what it rests on, every candidate, "
    "latency histograms, where the time goes, a table of all layers, their graph, the ranges of quantized "
    "tensors over what calibration saw, a roofline; with two engines, their layers side by side. Layers are "
    "timed on this machine when the engine runs here; the page says what was measured where.",
    examples=(
        ("one engine", "quantrt report model.qrt -o report.html"),
        ("before and after", "quantrt report old.qrt new.qrt -o report.html"),
        (
            "from the file alone, for an engine of another machine",
            "quantrt report model.qrt --no-run -o report.html",
        ),
        ("layers timed on real data", "quantrt report model.qrt --data valid.npz -o report.html"),
    ),
    add_arguments=_add_arguments,
    run=_run,
)
