# SPDX-License-Identifier: Apache-2.0
"""Runs of parts of two models, and what counts as the failure that is looked for."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import onnx_ir as ir

from quantrt.config import CompareConfig
from quantrt.ir.array_file import write_arrays
from quantrt.model.file.save import save_model
from quantrt.reference.metrics import Error
from quantrt.report.bisect.side import Side
from quantrt.report.compare.limits import violations_of
from quantrt.worker_process import CRASHED, WorkerProcess

__all__ = ["CRASH", "DIFFERS", "NOT_FINITE", "Crash", "Failure", "Trials", "failure_in"]

DIFFERS, NOT_FINITE, CRASH = "differs", "not finite", "crash"

Arrays = Mapping[str, np.ndarray]


@dataclass(frozen=True)
class Crash:
    """A library died, or refused.

    Attributes:
        text: how.
    """

    text: str

    @property
    def signature(self) -> str:
        """The text without names and numbers: what tells one failure from another."""
        return re.sub(r"'[^']*'|\"[^\"]*\"|[\d.]+|\S*[/:]\S*", "", self.text)[:80]


@dataclass(frozen=True)
class Failure:
    """What is wrong with the outputs of a run.

    Attributes:
        kind: DIFFERS, NOT_FINITE or CRASH.
        text: what was found.
        noise_ratio: of the worst output; inf where it is not finite.
        outputs: those that fail.
    """

    kind: str
    text: str
    noise_ratio: float
    outputs: tuple[str, ...] = ()


class Trials:
    """Runs models in the worker.

    Attributes:
        count: runs so far.
    """

    def __init__(self, process: WorkerProcess, folder: Path) -> None:
        self._process = process
        self._folder = folder
        self.count = 0

    def run(self, side: Side, model: ir.Model, feed: Arrays) -> dict[str, np.ndarray] | Crash:
        """The outputs of a part of one side; a crash is a result."""
        self.count += 1
        graph, inputs, outputs = (self._folder / name for name in ("part.onnx", "inputs.npz", "outputs.npz"))
        save_model(model, graph)
        names = [value.name or "" for value in model.graph.inputs]
        write_arrays(inputs, {f"i{number}": feed[name] for number, name in enumerate(names)})
        answer = self._process.ask(
            {
                "run": str(graph),
                "library": side.library,
                "options": asdict(side.options),
                "inputs": str(inputs),
                "outputs": str(outputs),
            }
        )
        for key in (CRASHED, "error"):
            if key in answer:
                return Crash(str(answer[key]))
        with np.load(outputs, allow_pickle=False) as arrays:
            results = [value.name or "" for value in model.graph.outputs]
            return {name: arrays[f"o{number}"] for number, name in enumerate(results)}


def failure_in(
    wanted: Arrays, got: Arrays, names: Sequence[str], config: CompareConfig, kind: str | None = None
) -> Failure | None:
    """What is wrong with tensors; values that are no numbers count before differences.

    Args:
        kind: the only kind that counts.
    """
    strange = [name for name in names if wanted[name].shape != got[name].shape]
    if strange and kind in (None, DIFFERS):
        shapes = f"{list(got[strange[0]].shape)} instead of {list(wanted[strange[0]].shape)}"
        return Failure(DIFFERS, f"'{strange[0]}' is {shapes}", float("inf"), tuple(strange))
    missing = [name for name in names if _has_new_holes(wanted[name], got[name])]
    if missing and kind in (None, NOT_FINITE):
        holes = int(np.count_nonzero(~np.isfinite(got[missing[0]])))
        text = f"{holes} of {got[missing[0]].size} values of '{missing[0]}' are NaN or infinite"
        return Failure(NOT_FINITE, text, float("inf"), tuple(missing))
    if kind == NOT_FINITE:
        return None
    bad = {name: _difference(wanted[name], got[name]) for name in names}
    failing = {name: error for name, error in bad.items() if error.signal and violations_of(error, config)}
    if not failing:
        return None
    worst = max(failing, key=lambda name: failing[name].noise_ratio)
    text = f"'{worst}': {', '.join(violations_of(failing[worst], config))}: {failing[worst].sqnr_db:.1f} dB"
    return Failure(DIFFERS, text, failing[worst].noise_ratio, tuple(failing))


def _has_new_holes(wanted: np.ndarray, got: np.ndarray) -> bool:
    if wanted.dtype.kind != "f" or wanted.shape != got.shape:
        return False
    return bool((np.isfinite(wanted) & ~np.isfinite(got)).any())


def _difference(wanted: np.ndarray, got: np.ndarray) -> Error:
    """Over the values that the reference has as numbers; nothing where the shapes differ."""
    error = Error()
    if wanted.shape == got.shape and wanted.dtype.kind == "f":
        finite = np.isfinite(wanted)
        error.add(wanted[finite], got[finite])
    return error
