# SPDX-License-Identifier: Apache-2.0
"""`quantrt doctor`: what this machine offers, and what that means for each precision."""

from __future__ import annotations

import argparse
from typing import Any

from quantrt.cli.command import Command, Result

__all__ = ["COMMAND"]


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    """No arguments of its own."""


def _run(args: argparse.Namespace) -> Result:
    """Describe the device."""
    from quantrt import __version__
    from quantrt.device import describe_device, precision_facts

    device = describe_device()
    precisions = [
        {"precision": row.precision, "is_native": row.is_native, "meaning": row.meaning}
        for row in precision_facts(device["isa"])
    ]
    data = {"quantrt": __version__, "device": device, "precisions": precisions}
    return Result(data, lambda: _show(data))


def _show(data: dict[str, Any]) -> None:
    from quantrt.report.device_text import device_facts
    from quantrt.report.tables import heading, show, table

    rows = [
        (row["precision"], "yes" if row["is_native"] else "no", row["meaning"]) for row in data["precisions"]
    ]
    show(
        heading(f"quantrt {data['quantrt']}"),
        device_facts(data["device"]),
        "",
        table(
            ("precision", "native", "what that means here"),
            rows,
            left=("precision", "native"),
            fold=("what that means here",),
        ),
    )


COMMAND = Command(
    name="doctor",
    summary="what this machine offers, and what that means for each precision",
    details="Show the CPU's instruction sets, cores, memory, GPU and library versions, and what they mean "
    "for fp32, bf16 and int8.",
    examples=(("what can this machine do?", "quantrt doctor"), ("for a bug report", "quantrt doctor --json")),
    add_arguments=_add_arguments,
    run=_run,
)
