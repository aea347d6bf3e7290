# SPDX-License-Identifier: Apache-2.0
"""The command `quantrt`: parse, run one verb, print its result; a failure becomes a text and an exit code."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Sequence
from contextlib import nullcontext, redirect_stdout
from pathlib import Path

from quantrt.cli.command import Command, Result
from quantrt.cli.failure import Failure, explain
from quantrt.cli.json_text import json_text
from quantrt.cli.parser import parse
from quantrt.cli.signals import end_as_by_control_c
from quantrt.cli.verbs import (
    bench,
    build,
    calibrate,
    check,
    compare,
    completion,
    doctor,
    inspect,
    pareto,
    quantize,
    report,
    run,
    trtexec,
    tune,
)
from quantrt.cli.verbs import explain as explain_verb
from quantrt.errors import DeviceError
from quantrt.ir.collector import leave_cycles
from quantrt.log import setup_logging

__all__ = ["COMMANDS", "entry_point", "main"]

COMMANDS: tuple[Command, ...] = (
    build.COMMAND,
    calibrate.COMMAND,
    quantize.COMMAND,
    run.COMMAND,
    bench.COMMAND,
    compare.COMMAND,
    inspect.COMMAND,
    explain_verb.COMMAND,
    tune.COMMAND,
    pareto.COMMAND,
    report.COMMAND,
    trtexec.COMMAND,
    check.COMMAND,
    doctor.COMMAND,
    completion.COMMAND,
)


def entry_point() -> int:
    """Run the command line of this process; the return value is its exit code."""
    _open_streams()
    end_as_by_control_c()
    try:
        code = main(sys.argv[1:])
        sys.stdout.flush()
    except BrokenPipeError:
        # The reader (`| head`) has gone.
        code = _give_up_stdout(141)  # 128 + SIGPIPE, what a shell reports for any other program
    except OSError as error:
        print(f"error: {_no_output(error).text('`df -h`')}", file=sys.stderr)
        code = _give_up_stdout(DeviceError.exit_code)
    leave_cycles()
    return code


def _open_streams() -> None:
    """Streams that were closed (`>&-`) take what is printed, to nowhere."""
    sys.stdout = sys.stdout or Path(os.devnull).open("w")
    sys.stderr = sys.stderr or Path(os.devnull).open("w")
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # a layer's name may not fit an ASCII terminal


def _give_up_stdout(code: int) -> int:
    """The code; Python does not complain once more when it closes stdout."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return code


def _no_output(error: OSError) -> DeviceError:
    return DeviceError("cannot write to standard output", got=error.strerror)


def main(argv: Sequence[str]) -> int:
    """Run one command line and return its exit code; never raises but for a broken pipe.

    Results go to stdout, everything else to stderr.
    """
    try:
        args = parse(COMMANDS, argv)
        setup_logging(verbose=args.verbose, quiet=args.quiet)
        # What functions of the user's print is no part of a JSON document.
        with redirect_stdout(sys.stderr) if args.json else nullcontext():
            result = args.command.run(args)
        _print_result(result, as_json=args.json)
    except BrokenPipeError:
        raise
    except SystemExit as leaving:  # argparse after -h and --version
        return int(leaving.code or 0)
    except (Exception, KeyboardInterrupt) as error:  # noqa: BLE001  the last handler: nothing may pass it
        failure = explain(error, argv, [command.name for command in COMMANDS])
        _print_failure(failure, argv)
        return failure.exit_code
    return int(result.exit_code)


def _print_result(result: Result, *, as_json: bool) -> None:
    try:
        if as_json:
            print(json_text(result.data))
        else:
            result.show()
    except BrokenPipeError:
        raise
    except OSError as error:
        raise _no_output(error) from error


def _print_failure(failure: Failure, argv: Sequence[str]) -> None:
    """The text on stderr; with --json the same as a document on stdout."""
    # The arguments may be what is wrong, so the two switches are looked up in the words themselves.
    if "--traceback" in argv:
        print(failure.traceback, file=sys.stderr, end="")
    print(failure.text, file=sys.stderr)
    if "--json" in argv:
        print(json_text(failure.data))
