# SPDX-License-Identifier: Apache-2.0
"""`quantrt doctor`: what this machine offers, and what that means for each precision."""

from __future__ import annotations

import argparse
from typing import Any

from quantrt.cli.command import Command, Result
from quantrt.errors import DeviceError

__all__ = ["COMMAND"]


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    """No arguments of its own."""


def _run(args: argparse.Namespace) -> Result:
    """Describe the device."""
    from quantrt import __version__
    from quantrt.device import describe_device, gpu_precisions, precision_facts

    device = describe_device()
    precisions = [
        {"precision": row.precision, "is_native": row.is_native, "meaning": row.meaning}
        for row in precision_facts(device["isa"])
    ]
    gpus = [{**gpu, "tensor_cores": gpu_precisions(gpu["compute_capability"])} for gpu in device["gpu"] or ()]
    data = {
        "quantrt": __version__,
        "device": device,
        "precisions": precisions,
        "gpus": gpus,
        "cuda": {"run": _what_stops(compiles=False), "build": _what_stops(compiles=True)},
    }
    return Result(data, lambda: _show(data))


def _what_stops(*, compiles: bool) -> dict[str, str] | None:
    """Why an engine for a GPU cannot run here, or be built, and what to do; None when it can."""
    from quantrt.runtime.cuda.device.available import check_gpu

    try:
        check_gpu(compiles=compiles)
    except DeviceError as error:
        return {"reason": error.message, "got": error.got or "", "hint": error.hint or ""}
    return None


def _show(data: dict[str, Any]) -> None:
    from quantrt.report.device_text import device_facts, gpu_table
    from quantrt.report.tables import facts, heading, show, table

    rows = [
        (row["precision"], "yes" if row["is_native"] else "no", row["meaning"]) for row in data["precisions"]
    ]
    show(
        heading(f"quantrt {data['quantrt']}"),
        device_facts(data["device"]),
        "",
        *(gpu_table(data["gpus"]), "") if data["gpus"] else (),
        facts(("CUDA engines", text) for text in _cuda_texts(data["cuda"])),
        "",
        table(
            ("precision", "native", "what that means here"),
            rows,
            left=("precision", "native"),
            fold=("what that means here",),
        ),
    )


def _cuda_texts(stops: dict[str, dict[str, str] | None]) -> list[str]:
    """What can be done with engines for a GPU here, and what keeps the rest from it; alike reasons once."""
    if stops["run"] is None and stops["build"] is None:
        return ["can be built and run"]
    texts = ["can be run"] if stops["run"] is None else []
    reasons = dict.fromkeys(_reason_text(stop) for stop in stops.values() if stop is not None)
    return texts + list(reasons)


def _reason_text(stop: dict[str, str]) -> str:
    got = f" ({stop['got']})" if stop["got"] else ""
    hint = f"; try {stop['hint']}" if stop["hint"] and "doctor" not in stop["hint"] else ""
    return f"{stop['reason']}{got}{hint}"


COMMAND = Command(
    name="doctor",
    summary="what this machine offers, and what that means for each precision",
    details="Show the CPU's instruction sets, cores, memory, GPUs and library versions, what they mean for "
    "fp32, bf16 and int8, and whether engines for a GPU can be built and run.",
    examples=(("what can this machine do?", "quantrt doctor"), ("for a bug report", "quantrt doctor --json")),
    add_arguments=_add_arguments,
    run=_run,
)
