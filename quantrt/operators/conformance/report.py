# SPDX-License-Identifier: Apache-2.0
"""The results of a run as a table and as JSON."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import onnx
import torch

from quantrt.ir.atomic import replace_file
from quantrt.operators.conformance.run import Result
from quantrt.operators.conformance.scope import EXPANDED, REQUIRED
from quantrt.operators.table import OPERATORS

__all__ = ["save_results", "table", "untested_operators"]

_STATUSES = ("passed", "failed", "skipped")
_MAX_DETAIL = 200


def untested_operators(results: Sequence[Result]) -> list[str]:
    """The required operators that no passing case contains."""
    passed = {name for result in results if result.status == "passed" for name in result.case.operators}
    return [name for name in REQUIRED if name not in passed]


def table(results: Sequence[Result], untested: Sequence[str]) -> str:
    """Cases per operator and status, then every skip and failure with its reason, then the totals.

    The share that passed is of all cases with a required operator, those that are skipped among them.
    """
    lines = [f"{'operator':28}" + "".join(f"{status:>9}" for status in _STATUSES)]
    for name in sorted({*(row.op_type for row in OPERATORS), *EXPANDED}):
        mine = [result.status for result in results if name in result.case.operators]
        if mine:
            lines.append(f"{name:28}" + "".join(f"{mine.count(status):9}" for status in _STATUSES))
    for status in ("skipped", "failed"):
        lines += [
            f"{status}: {result.case.name}: {result.detail[:_MAX_DETAIL]}"
            for result in results
            if result.status == status
        ]
    lines += [f"no passing test: {name}" for name in untested]
    totals = {status: sum(result.status == status for result in results) for status in _STATUSES}
    lines.append(", ".join(f"{count} {status}" for status, count in totals.items()))
    required = [result for result in results if result.case.operators & set(REQUIRED)]
    if required:
        ratio = sum(result.status == "passed" for result in required) / len(required)
        lines.append(f"of those with an operator that must run {100 * ratio:.1f} % passed")
    return "\n".join(lines)


def save_results(results: Sequence[Result], device: str, path: Path) -> None:
    """Write every result as JSON, with the device and the versions."""
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
