# SPDX-License-Identifier: Apache-2.0
"""`python -m quantrt.operators.conformance [--device cuda] [--json FILE]`."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import onnx
import torch

from quantrt.errors import QuantRtError
from quantrt.ir.atomic import replace_file
from quantrt.operators.conformance.cases import load_cases
from quantrt.operators.conformance.run import Result, run_case
from quantrt.operators.conformance.scope import EXPANDED, REQUIRED
from quantrt.operators.table import OPERATORS

__all__ = ["main"]

_STATUSES = ("passed", "failed", "skipped")


def main(words: Sequence[str] | None = None) -> int:
    """Run the suite; 0 when nothing failed and every required operator has a passing test."""
    parser = argparse.ArgumentParser(prog="python -m quantrt.operators.conformance", description=main.__doc__)
    parser.add_argument("--device", default="cpu", help="a torch device; default: cpu")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every result to FILE")
    parser.add_argument("--only", metavar="TEXT", default="", help="cases whose name contains TEXT")
    options = parser.parse_args(words)
    try:
        chosen = [case for case in load_cases() if options.only in case.name]
        results = [run_case(case, options.device) for case in chosen]
        if options.json:
            _save(results, options.device, options.json)
    except QuantRtError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    untested = [] if options.only else _untested(results)
    _show(results, untested)
    return 1 if untested or any(result.status == "failed" for result in results) else 0


def _untested(results: Sequence[Result]) -> list[str]:
    passed = {name for result in results if result.status == "passed" for name in result.case.operators}
    return [name for name in REQUIRED if name not in passed]


def _show(results: Sequence[Result], untested: Sequence[str]) -> None:
    print(f"{'operator':28}" + "".join(f"{status:>9}" for status in _STATUSES))
    for name in sorted({*(row.op_type for row in OPERATORS), *EXPANDED}):
        mine = [result.status for result in results if name in result.case.operators]
        if mine:
            print(f"{name:28}" + "".join(f"{mine.count(status):9}" for status in _STATUSES))
    for status in ("skipped", "failed"):
        for result in results:
            if result.status == status:
                print(f"{status}: {result.case.name}: {result.detail[:200]}")
    for name in untested:
        print(f"no passing test: {name}")
    totals = {status: sum(result.status == status for result in results) for status in _STATUSES}
    print(", ".join(f"{count} {status}" for status, count in totals.items()))


def _save(results: Sequence[Result], device: str, path: Path) -> None:
    is_gpu = torch.device(device).type == "cuda"
    report: dict[str, Any] = {
        "device": torch.cuda.get_device_name(device) if is_gpu else device,
        "versions": {"torch": torch.__version__, "onnx": onnx.__version__},
        "cases": [
            {
                "name": result.case.name,
                "kind": result.case.kind,
                "operators": sorted(result.case.operators),
                "status": result.status,
                "detail": result.detail,
            }
            for result in results
        ],
    }
    with replace_file(path) as stream:
        stream.write(json.dumps(report, indent=1).encode())


if __name__ == "__main__":
    sys.exit(main())
