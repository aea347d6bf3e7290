# SPDX-License-Identifier: Apache-2.0
"""`python -m quantrt.operators.conformance [--device cuda] [--json FILE]`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from quantrt.errors import DeviceError, QuantRtError

__all__ = ["main"]


def main(words: Sequence[str] | None = None) -> int:
    """Run ONNX's backend tests; 0 when none failed and every required operator has a passing one."""
    parser = argparse.ArgumentParser(prog="python -m quantrt.operators.conformance", description=main.__doc__)
    parser.add_argument("--device", default="cpu", help="a torch device; default: cpu")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every result to FILE")
    parser.add_argument("--only", metavar="TEXT", default="", help="cases whose name contains TEXT")
    options = parser.parse_args(words)
    try:
        return _run(options.device, options.json, options.only)
    except QuantRtError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code


def _run(device: str, path: Path | None, only: str) -> int:
    try:
        # Not before: the help is there without torch.
        from quantrt.operators.conformance.cases import load_cases
        from quantrt.operators.conformance.report import save_results, table, untested_operators
        from quantrt.operators.conformance.run import run_case
        from quantrt.operators.interpret import open_device
    except ModuleNotFoundError as error:
        raise DeviceError(
            "the torch operators cannot be loaded", got=str(error), hint="pip install '.[cuda]'"
        ) from error
    open_device(device)
    results = [run_case(case, device) for case in load_cases() if only in case.name]
    untested = [] if only else untested_operators(results)
    if path is not None:
        save_results(results, device, path)
    print(table(results, untested))
    return 1 if untested or any(result.status == "failed" for result in results) else 0


if __name__ == "__main__":
    sys.exit(main())
