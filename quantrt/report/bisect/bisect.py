# SPDX-License-Identifier: Apache-2.0
"""Two models that differ, make NaN or crash -> a folder with the few nodes that do."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

from quantrt.calibrate.dataset import Dataset
from quantrt.config import CompareConfig
from quantrt.errors import UsageError
from quantrt.ir.scratch import scratch_folder
from quantrt.report.bisect.find import find_failure
from quantrt.report.bisect.folder import facts_of, write_folder
from quantrt.report.bisect.side import Side, read_side
from quantrt.report.bisect.trials import Trials
from quantrt.report.compare.limits import limits_text
from quantrt.report.tables import facts, heading, show, verdict
from quantrt.worker_process import WorkerProcess

__all__ = ["bisect", "read_sides", "show_bisection"]

WORKER = "quantrt.report.bisect.worker"

NAMED = 12
"""Nodes that are named."""


def read_sides(a: Path, b: Path) -> tuple[Side, Side]:
    """Both models, neither opened.

    Raises:
        UsageError: one cannot be taken apart, or they take different inputs.
        ModelError: a file cannot be read.
    """
    sides = read_side(a, b), read_side(b, a)
    names = [{spec.name for spec in side.inputs} for side in sides]
    if names[0] != names[1]:
        raise UsageError(
            f"cannot compare '{a}' and '{b}': they take different inputs",
            got=", ".join(sorted(names[1])),
            expected=", ".join(sorted(names[0])),
        )
    return sides


def bisect(
    sides: tuple[Side, Side],
    dataset: Dataset,
    config: CompareConfig,
    folder: Path,
    on_progress: Callable[[int, int | None], None] = lambda done, total: None,
) -> dict[str, Any]:
    """Find the fewest nodes that fail, and write them; JSON-ready facts.

    Raises:
        ModelError: the failure cannot be had from parts; nothing is written.
    """
    data: dict[str, Any] = {
        "reference": str(sides[0].path),
        "subject": str(sides[1].path),
        "limits": {
            "min_sqnr_db": config.min_sqnr_db,
            "min_cosine": config.min_cosine,
            "max_abs": config.max_abs,
        },
    }
    with scratch_folder() as place, closing(WorkerProcess(WORKER)) as process:
        trials = Trials(process, place)
        found = find_failure(sides, dataset, config, trials, on_progress)
        if found is None:
            return {**data, "failure": None, "folder": None, "runs": trials.count, "passed": True}
        written = write_folder(folder, found, sides, config, process)
    return {
        **data,
        "failure": facts_of(found, sides),
        "folder": {
            "path": str(folder),
            "files": list(written.files),
            "command": written.command,
            "says": written.says,
        },
        "runs": trials.count,
        "passed": False,
    }


def show_bisection(data: Mapping[str, Any]) -> None:
    """What was found, ending with PASSED or FAILED."""
    failure, folder = data["failure"], data["folder"]
    limits = ", ".join(limits_text(data["limits"]))
    if failure is None or folder is None:
        show(verdict(True, f"no sample fails: there is nothing to bisect; limits: {limits}"))
        return
    nodes = failure["nodes"]
    more = f" and {len(nodes) - NAMED} more" if len(nodes) > NAMED else ""
    show(heading(f"{len(nodes)} of {failure['node_count']} nodes of {failure['model']} fail by themselves"))
    show(
        facts(
            [
                ("the whole", failure["whole"]),
                ("these nodes", folder["says"]),
                ("nodes", ", ".join(nodes[:NAMED]) + more),
                ("inputs", ", ".join(failure["inputs"])),
                ("outputs", ", ".join(failure["outputs"])),
                ("found in", f"{data['runs']} runs, on sample {failure['sample']}"),
                ("written", f"{folder['path']}: {', '.join(folder['files'])}"),
                ("shows it", f"cd {folder['path']} && {folder['command']}"),
            ]
        ),
        "",
        verdict(False, f"{failure['kind']}; limits: {limits}"),
    )
