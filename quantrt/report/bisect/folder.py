# SPDX-License-Identifier: Apache-2.0
"""The part that fails as a folder: two models, their inputs, and the command that shows it.

Everything is written into a folder of another name beside it, the command is tried there, and then the folder
gets its name: there is never half of it.
"""

from __future__ import annotations

import os
import secrets
import shlex
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from quantrt.config import CompareConfig
from quantrt.errors import DeviceError, ModelError, UsageError
from quantrt.ir.array_file import write_arrays
from quantrt.ir.atomic import replace_file
from quantrt.model.file.save import save_model
from quantrt.report.bisect.cut import with_inputs
from quantrt.report.bisect.find import Found
from quantrt.report.bisect.side import Side
from quantrt.report.bisect.trials import CRASH
from quantrt.worker_process import CRASHED, WorkerProcess

__all__ = ["Written", "check_folder", "facts_of", "write_folder"]

INPUTS = "inputs.npz"


@dataclass(frozen=True)
class Written:
    """A folder that shows a failure.

    Attributes:
        files: in it.
        command: to run in it.
        says: what the command did when it was tried.
    """

    files: tuple[str, ...]
    command: str
    says: str


def check_folder(folder: Path) -> None:
    """Fail before any long work where the folder cannot be made.

    Raises:
        UsageError: there is something at the path, or its parent does not exist.
    """
    if folder.exists():
        raise UsageError(f"cannot write '{folder}': it exists", hint=f"-o '{folder}-2'")
    if not folder.parent.is_dir():
        raise UsageError(
            f"cannot write '{folder}': its folder does not exist", hint=f"mkdir -p '{folder.parent}'"
        )


def write_folder(
    folder: Path, found: Found, sides: tuple[Side, Side], config: CompareConfig, process: WorkerProcess
) -> Written:
    """Write the folder and see that its command fails as the whole model does.

    Raises:
        ModelError: the command does not fail: nothing is written.
        DeviceError: the folder cannot be written.
    """
    with _new_folder(folder) as place:
        names = _write_models(place, found, sides, process)
        write_arrays(place / INPUTS, found.feed)
        limits = {
            "min_sqnr_db": config.min_sqnr_db,
            "min_cosine": config.min_cosine,
            "max_abs": config.max_abs,
        }
        says = _try(place, names, limits, found, process)
        command = shlex.join(["quantrt", "compare", *names, "--data", INPUTS, *_flags(limits)])
        with replace_file(place / "README.md") as file:
            file.write(_readme(found, sides, command, says).encode(errors="backslashreplace"))
        files = tuple(sorted(path.name for path in place.iterdir()))
    return Written(files, command, says)


@contextmanager
def _new_folder(folder: Path) -> Iterator[Path]:
    """A folder of another name that becomes `folder` when the block ends, and vanishes if it fails."""
    place = folder.with_name(f".{folder.name}.{secrets.token_hex(4)}.tmp")
    try:
        place.mkdir()
        yield place
        place.rename(folder)
    except OSError as error:
        reason = os.strerror(error.errno) if error.errno else str(error)
        raise DeviceError(f"cannot write '{folder}'", got=reason) from error
    finally:
        shutil.rmtree(place, ignore_errors=True)


def _write_models(
    place: Path, found: Found, sides: tuple[Side, Side], process: WorkerProcess
) -> tuple[str, str]:
    """Both parts as files; their names, A first."""
    parts = (found.subject, found.reference) if found.is_swapped else (found.reference, found.subject)
    names = []
    for stem, part, side in zip(("reference", "subject"), parts, sides, strict=True):
        graph = place / f"{stem}.onnx"
        save_model(with_inputs(part.model, found.feed, found.feed), graph)
        names.append(graph.name if not side.is_engine else f"{stem}.qrt")
    for stem, side in zip(("reference", "subject"), sides, strict=True):
        if side.is_engine:
            graph = place / f"{stem}.onnx"
            request = {
                "engine": str(place / f"{stem}.qrt"),
                "like": str(side.path),
                "model": str(place / "reference.onnx"),
                "graph": str(graph),
            }
            answer = process.ask(request)
            if answer:
                raise ModelError("cannot make an engine of the part that fails", got=str(answer))
    return names[0], names[1]


def _try(
    place: Path,
    names: tuple[str, str],
    limits: Mapping[str, float | None],
    found: Found,
    process: WorkerProcess,
) -> str:
    """What comparing the files says; it has to be the failure."""
    paths = [str(place / name) for name in names]
    answer = process.ask({"compare": paths, "data": str(place / INPUTS), "limits": dict(limits)})
    crash = answer.get(CRASHED) or answer.get("error")
    if found.failure.kind == CRASH and crash:
        return str(crash)
    if found.failure.kind != CRASH and answer.get("passed") is False:
        return f"FAILED: {found.failure.text}"
    raise ModelError(
        "the part that fails does not fail when it is read from files",
        got=str(crash or "PASSED"),
        expected=found.failure.text,
    )


def _flags(limits: Mapping[str, float | None]) -> Iterator[str]:
    flags = {"min_sqnr_db": "--min-sqnr", "min_cosine": "--min-cosine", "max_abs": "--max-abs"}
    for name, flag in flags.items():
        if limits[name] is not None:
            yield from (flag, f"{limits[name]:g}")


def _readme(found: Found, sides: tuple[Side, Side], command: str, says: str) -> str:
    nodes = len(found.subject.nodes)
    return (
        f"`{command}`\n\n"
        f"{nodes} of {found.nodes} nodes of {_subject_name(found, sides)} that show its failure on sample "
        f"{found.sample}.\n\n"
        f"- the whole: {found.whole.text}\n- these nodes: {says}\n"
        f"- nodes: {', '.join(found.subject.nodes)}\n"
    )


def _subject_name(found: Found, sides: tuple[Side, Side]) -> str:
    return f"`{sides[0 if found.is_swapped else 1].path.name}`"


def facts_of(found: Found, sides: tuple[Side, Side]) -> dict[str, Any]:
    """JSON-ready."""
    return {
        "kind": found.failure.kind,
        "model": str(sides[0 if found.is_swapped else 1].path),
        "sample": found.sample,
        "whole": found.whole.text,
        "part": found.failure.text,
        "nodes": list(found.subject.nodes),
        "node_count": found.nodes,
        "inputs": list(found.feed),
        "outputs": list(found.subject.outputs),
    }
