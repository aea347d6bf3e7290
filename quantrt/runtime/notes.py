# SPDX-License-Identifier: Apache-2.0
"""What a user should know of an engine before trusting its choices on this machine."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from quantrt.plan.plan import Plan

__all__ = ["UNCALIBRATED", "engine_notes"]

UNCALIBRATED = "uncalibrated (random data)"


def engine_notes(plan: Plan, here: Mapping[str, Any]) -> tuple[str, ...]:
    """One sentence each: calibration, the CPU, its instructions and cores, and library versions.

    Args:
        here: facts of this machine, as `quantrt.device.describe_device` gives them. A fact that either side
            lacks is not compared.
    """
    notes = [_calibration_note(plan), _cpu_note(plan.device, here), *_library_notes(plan, here)]
    return tuple(note for note in notes if note)


def _calibration_note(plan: Plan) -> str | None:
    if plan.is_calibrated:
        return None
    return f"{UNCALIBRATED}: its ranges come from random data, so its accuracy means nothing"


def _cpu_note(there: Mapping[str, Any], here: Mapping[str, Any]) -> str | None:
    differences = []
    for key, label in (("cpu", ""), ("architecture", ""), ("physical_cores", " cores")):
        before, now = there.get(key), here.get(key)
        if before and now and before != now:
            differences.append((f"{before}{label}", f"{now}{label}"))
    before_isa, now_isa = there.get("isa"), here.get("isa")
    if before_isa is not None and now_isa is not None and set(before_isa) != set(now_isa):
        differences.append((_isa_text(before_isa, now_isa), _isa_text(now_isa, before_isa)))
    if not differences:
        return None
    before_text = ", ".join(before for before, _ in differences)
    now_text = ", ".join(now for _, now in differences)
    return f"timed on {before_text}; this is {now_text}: choices made there were not timed again"


def _isa_text(isa: Any, other: Any) -> str:
    """The instruction sets that only one side has."""
    only = sorted(set(isa) - set(other))
    return "with " + " ".join(only) if only else "without " + " ".join(sorted(set(other) - set(isa)))


def _library_notes(plan: Plan, here: Mapping[str, Any]) -> list[str]:
    library = plan.model.library
    before = (plan.device.get("libraries") or {}).get(library)
    now = (here.get("libraries") or {}).get(library)
    if before and now and before != now:
        return [f"built and verified with {library} {before}; this is {library} {now}"]
    return []
