# SPDX-License-Identifier: Apache-2.0
"""A peer's figures, kept in a folder: whoever measures QuantRT again does not wait hours for its peers."""

__all__ = ["judge_once"]

import json
from pathlib import Path

import numpy as np

from benchmarks.peers.contenders import Contender
from benchmarks.record import environment
from benchmarks.tasks.judge import Outputs, judge
from benchmarks.tasks.paired import Judged
from benchmarks.tasks.task import Task


def judge_once(contender: Contender, task: Task, reference: Outputs, folder: Path) -> Judged:
    """What `folder` has of it, from the same machine, packages and number of samples, or what is judged now.

    A file `TASK.CONTENDER.npz` holds the row as text, and the arrays of every sample by their names.
    """
    made_by = {**environment(), "samples": reference.samples}
    path = folder / f"{task.name}.{contender.name.replace(' ', '_')}.npz"
    if path.exists() and (kept := _read(path, made_by)) is not None:
        return kept
    judged = judge(contender, task, reference)
    folder.mkdir(parents=True, exist_ok=True)
    arrays = {f"noise/{name}": array for name, array in judged.noise.items()}
    arrays |= {f"signal/{name}": array for name, array in judged.signal.items()}
    arrays |= {name: array for name in ("same", "values") if (array := getattr(judged, name)) is not None}
    arrays |= {"row": np.array(json.dumps(judged.row)), "made_by": np.array(json.dumps(made_by))}
    np.savez_compressed(path, **arrays)  # type: ignore[arg-type]
    return judged


def _read(path: Path, made_by: dict[str, object]) -> Judged | None:
    """What a file holds; None where something else made it."""
    with np.load(path) as kept:
        if json.loads(str(kept["made_by"])) != made_by:
            return None
        judged = Judged(json.loads(str(kept["row"])))
        judged.noise = {name.removeprefix("noise/"): kept[name] for name in kept.files if "noise/" in name}
        judged.signal = {name.removeprefix("signal/"): kept[name] for name in kept.files if "signal/" in name}
        judged.same = kept["same"] if "same" in kept.files else None
        judged.values = kept["values"] if "values" in kept.files else None
    return judged
