# SPDX-License-Identifier: Apache-2.0
"""`quantrt trtexec`: trtexec's own command line, over QuantRT."""

from __future__ import annotations

import argparse
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from quantrt.cli.command import Command, Result
from quantrt.trtexec.flags.flag import Effect, Flag, Form
from quantrt.trtexec.flags.flags import GROUPS

if TYPE_CHECKING:
    from quantrt.trtexec.flags.parse import Given
    from quantrt.trtexec.reports.log import Log

__all__ = ["COMMAND"]

OF_EVERY_VERB = ("--help", "-h", "--json", "--traceback", "--verbose", "-v", "-q", "--quiet")
"""Flags that the parser has for every verb."""

_MARKS = {Effect.DOES: "", Effect.NOTHING: "[nothing to do] ", Effect.REFUSED: "[refused] "}


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    """For the help text and for shells; the words themselves are read by `quantrt.trtexec.flags.parse`."""
    parser.usage = "%(prog)s --onnx=MODEL.onnx [--flag[=value] ...]"
    for title, flags in GROUPS:
        group = parser.add_argument_group(title)
        for flag in flags:
            if flag.name not in OF_EVERY_VERB and not flag.is_hidden:
                group.add_argument(flag.name, **_settings(flag))


def _settings(flag: Flag) -> dict[str, Any]:
    text = (_MARKS[flag.effect] + flag.text).replace("%", "%%")
    if flag.form is Form.SWITCH:
        return {"action": "store_true", "default": None, "help": text}
    return {
        "type": Path if flag.form in (Form.FILE, Form.FOLDER) else str,
        "metavar": flag.value_text,
        "default": None,
        "help": text,
    }


def _run(args: argparse.Namespace) -> Result:
    from quantrt.trtexec.flags.parse import read_words
    from quantrt.trtexec.reports.log import Log
    from quantrt.trtexec.reports.text import mark_line

    words = list(args.words)
    out = Log(all_on_stderr=args.json, is_verbose=args.verbose)
    out.mark(mark_line("RUNNING", words))
    try:
        result = _do(read_words(words), args, out)
    except BaseException:
        out.mark(mark_line("FAILED", words))
        raise
    out.mark(mark_line("FAILED" if result.exit_code else "PASSED", words))
    return result


def _do(given: Given, args: argparse.Namespace, out: Log) -> Result:
    from quantrt.report.progress import progress_bars
    from quantrt.trtexec.flags.settings import read_settings
    from quantrt.trtexec.shim import install_shim

    folder = given.text("--install-shim")
    if folder is not None:
        path = install_shim(Path(folder).expanduser(), force=given.has("--force"))
        out.info(f"Wrote {path}; it is found as trtexec with PATH={path.parent.resolve()}:$PATH")
        return Result({"path": str(path)}, _show_nothing)
    settings = read_settings(given)
    from quantrt.trtexec.run import run

    with _package_log(out), progress_bars(quiet=args.quiet) as bars:
        outcome = run(settings, out, bars.on_event)
    return Result(outcome.data, _show_nothing, exit_code=0 if outcome.passed else 1)


@contextmanager
def _package_log(out: Log) -> Iterator[None]:
    """What the package logs, in trtexec's form."""
    from quantrt.trtexec.reports.log import LogHandler

    logger = logging.getLogger("quantrt")
    before = logger.handlers[:]
    logger.handlers[:] = [LogHandler(out)]
    try:
        yield
    finally:
        logger.handlers[:] = before


def _show_nothing() -> None:
    """Everything was printed as it happened."""


COMMAND = Command(
    name="trtexec",
    summary="trtexec's own command line, text and JSON",
    details="Takes every flag of trtexec 8.6, 10.16 and 11.1: builds, saves, loads and times an engine, "
    "prints what trtexec prints, and says what it does not do. On a GPU where there is one, else on the CPU.",
    examples=(
        (
            "build with a TensorRT calibration cache, save, and time",
            "quantrt trtexec --onnx=model.onnx --int8 --calib=calibration.cache --saveEngine=model.qrt",
        ),
        (
            "time a saved engine, layer by layer",
            "quantrt trtexec --loadEngine=model.qrt --dumpProfile --exportProfile=profile.json",
        ),
        (
            "a range of batches, timed at eight",
            "quantrt trtexec --onnx=model.onnx --minShapes=image:1x3x224x224 --optShapes=image:8x3x224x224 "
            "--maxShapes=image:32x3x224x224",
        ),
        ("let other programs find it as trtexec", "quantrt trtexec --install-shim ~/bin"),
    ),
    add_arguments=_add_arguments,
    run=_run,
    reads_words=True,
)
