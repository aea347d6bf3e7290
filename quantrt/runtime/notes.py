# SPDX-License-Identifier: Apache-2.0
"""What a user should know of an engine before trusting its choices on this machine."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from quantrt.device import has_bf16
from quantrt.plan.plan import Plan

__all__ = ["UNCALIBRATED", "engine_notes"]

_CPU_FACTS = ("cpu", "architecture", "physical_cores")

UNCALIBRATED = "uncalibrated (random data)"


def engine_notes(plan: Plan, here: Mapping[str, Any]) -> tuple[str, ...]:
    """One sentence each: calibration, the CPU, its instructions and cores, and library versions.

    Of an engine for a GPU, the GPU and its driver stand for the CPU.

    Args:
        here: facts of this machine, as `quantrt.device.describe_device` gives them. A fact that either side
            lacks is not compared.
    """
    processor_note = _gpu_note if plan.model.library == "cuda" else _cpu_note
    floats_note = _bf16_note(plan, here)
    notes = [
        _calibration_note(plan),
        processor_note(plan.device, here),
        floats_note,
        *_library_notes(plan, here),
    ]
    return tuple(note for note in notes if note)


def _calibration_note(plan: Plan) -> str | None:
    if plan.is_calibrated:
        return None
    return f"{UNCALIBRATED}: its ranges come from random data, so its accuracy means nothing"


def _cpu_note(there: Mapping[str, Any], here: Mapping[str, Any]) -> str | None:
    differing = [key for key in _CPU_FACTS if there.get(key) and here.get(key) and there[key] != here[key]]
    lost, gained = _isa_change(there.get("isa"), here.get("isa"))
    if not (differing or lost or gained):
        return None
    before = _cpu_text(there, differing, [*_words("with", lost), *_words("without", gained)])
    now = _cpu_text(here, differing, [*_words("with", gained), *_words("without", lost)])
    return f"timed on {before}; this is {now}: choices made there were not timed again"


def _bf16_note(plan: Plan, here: Mapping[str, Any]) -> str | None:
    """A CPU without the instructions; OpenVINO refuses bf16 on some of them, and emulates it on others."""
    is_here = plan.model.library == "cuda" or plan.options.float_precision != "bf16"
    if is_here or here.get("isa") is None or has_bf16(here["isa"]):
        return None
    return (
        "its float layers compute in bf16, which this CPU has no instructions for: emulated, slower than FP32"
    )


def _gpu_note(there: Mapping[str, Any], here: Mapping[str, Any]) -> str | None:
    """The GPU it was timed on against those of this machine; the driver when the GPU is the same."""
    planned = there.get("planned_for")
    if planned:
        return f"never timed: its kernels were chosen for {planned['name']} by estimates or a timing cache"
    if not there.get("gpu") or not here.get("gpu"):
        return None
    timed = there["gpu"][0]
    same = [gpu for gpu in here["gpu"] if gpu["name"] == timed["name"]]
    if not same:
        names = " and ".join(dict.fromkeys(str(gpu["name"]) for gpu in here["gpu"]))
        return f"timed on {timed['name']}; this is {names}: choices made there were not timed again"
    before, now = timed.get("driver"), same[0].get("driver")
    if before and now and before != now:
        return f"timed with driver {before}; this is driver {now}: choices made there were not timed again"
    return None


def _isa_change(there: Any, here: Any) -> tuple[list[str], list[str]]:
    """Instruction sets that only there are, and that only here are."""
    if there is None or here is None:
        return [], []
    return sorted(set(there) - set(here)), sorted(set(here) - set(there))


def _words(word: str, names: list[str]) -> list[str]:
    return [f"{word} {' '.join(names)}"] if names else []


def _cpu_text(facts: Mapping[str, Any], differing: list[str], isa: list[str]) -> str:
    """The CPU by name, then what differs."""
    cores = [f"{facts['physical_cores']} cores"] if "physical_cores" in differing else []
    architecture = [str(facts["architecture"])] if "architecture" in differing else []
    return ", ".join([str(facts.get("cpu") or "an unnamed CPU"), *architecture, *cores, *isa])


def _library_notes(plan: Plan, here: Mapping[str, Any]) -> list[str]:
    library = "torch" if plan.model.library == "cuda" else plan.model.library
    before = (plan.device.get("libraries") or {}).get(library)
    now = (here.get("libraries") or {}).get(library)
    if before and now and before != now:
        return [f"built and verified with {library} {before}; this is {library} {now}"]
    return []
