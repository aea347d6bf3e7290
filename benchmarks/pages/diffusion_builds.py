# SPDX-License-Identifier: Apache-2.0
"""The section of `benchmarks.diffusion_builds` on the page of diffusion: what whole builds took."""

__all__ = ["WHOLE", "whole_builds"]

from collections.abc import Mapping
from typing import Any

from benchmarks.pages.page import number, row_notes, table

WHOLE = "whole builds"
"""Where the page's results have the rows of BUILDS.json."""

INTRODUCTION = """
### From file to file, on 16 cores

By `benchmarks.diffusion_builds`: each row is a process of its own, from its start to its end, Python's
imports in it. *first* knows nothing; *again* has what the first kept beside its timing cache; *load* opens
the engine and ends. *GPU in use* is the most that torch had handed out, *reserved* the most that it had taken
of the GPU for that. Candidates are FP32, fp16 and the one named; each is built and timed, but for what is
told below.

"""

STEPS = ("first", "again", "load")

HEAD = (
    "build",
    "commit",
    "limit MB",
    "ships",
    "s in all",
    "reading s",
    "compiling s",
    "writing s",
    "load s",
    "host GB",
    "GPU in use GB",
    "reserved GB",
)


def whole_builds(results: Mapping[str, Any]) -> str:
    """The section, with its notes; empty where nothing was measured."""
    rows = {name: row for name, row in results.get(WHOLE, {}).items() if name.split()[0] in STEPS}
    if not rows:
        return ""
    lines = [_line(name, row) for name, row in rows.items()]
    return INTRODUCTION + table(HEAD, lines) + row_notes(rows) + _left_out(rows)


def _left_out(rows: Mapping[str, Any]) -> str:
    """Which candidates were not opened, and why, as their reports say."""
    return "".join(
        f"\n{name}: {candidate['name']} was left out: {candidate['reason']}.\n"
        for name, row in rows.items()
        for candidate in row.get("candidates", ())
        if candidate["status"] == "left out"
    )


def _line(name: str, row: Mapping[str, Any]) -> tuple[str, ...]:
    parts, peak = row.get("parts_s", {}), row.get("peak_memory", {})
    return (
        name,
        row["commit"] or "unknown",
        str(row.get("limit_mb") or ""),
        row.get("ships", ""),
        number(row["process_s"], 1),
        *(number(parts.get(part), 1) for part in ("reading", "compiling", "writing")),
        number(row.get("load_s"), 1),
        *(
            _gb(size)
            for size in (peak.get("host_bytes"), peak.get("device_bytes"), row.get("reserved_bytes"))
        ),
    )


def _gb(size_bytes: float | None) -> str:
    return number(None if size_bytes is None else size_bytes / 1e9, 1)
