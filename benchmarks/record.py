# SPDX-License-Identifier: Apache-2.0
"""Where and with what a result was measured, and the file it is kept in."""

__all__ = [
    "PACKAGES",
    "commit",
    "environment",
    "load_results",
    "machine",
    "machine_line",
    "machine_name",
    "other_machine",
    "other_machines",
    "write_results",
]

import json
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

from quantrt.device import describe_device

PACKAGES = ("onnxruntime", "openvino", "nncf", "onnx", "numpy")

FACTS = ("cpu", "available_cores", "isa", "memory_bytes", "python")


def environment(packages: Sequence[str] = PACKAGES) -> dict[str, Any]:
    """The machine and the versions of everything that is compared."""
    device = describe_device(with_gpu=False)
    return {key: device[key] for key in FACTS} | {"packages": {name: version(name) for name in packages}}


def machine() -> str:
    """This machine, as rows of results name theirs."""
    return machine_name(environment(()))


def machine_line(environment: dict[str, Any]) -> str:
    """One sentence for a results page."""
    packages = ", ".join(f"{name} {number}" for name, number in environment["packages"].items())
    return f"{machine_name(environment)}; {packages}."


def other_machine(results: Mapping[str, Any]) -> dict[str, Any]:
    """What a row that is measured now says of its machine: nothing where it is that of the whole page."""
    here, page = machine_name(environment()), machine_name(results["environment"])
    return {} if here == page else {"machine": here}


def other_machines(rows: Iterable[tuple[str, Mapping[str, Any]]]) -> str:
    """A line for each machine that some rows, by name, are of and their page is not."""
    names: dict[str, list[str]] = {}
    for name, row in rows:
        if "machine" in row:
            names.setdefault(row["machine"], []).append(name)
    return "".join(f"{'; '.join(found)}: on {machine}.\n" for machine, found in names.items())


def machine_name(environment: dict[str, Any]) -> str:
    """A machine, as rows of results name theirs."""
    return f"{environment['cpu']}, {environment['available_cores']} cores ({', '.join(environment['isa'])})"


def commit() -> str:
    """The commit of the working tree, with `+changes` when tracked files of the package differ from it."""
    command = ["git", "rev-parse", "--short=12", "HEAD"]
    head = subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    is_clean = (
        subprocess.run(["git", "diff", "--quiet", "HEAD", "--", "quantrt"], check=False).returncode == 0
    )
    return head if is_clean else f"{head}+changes"


def load_results(
    path: Path, packages: Sequence[str] = PACKAGES, *, any_machine: bool = False
) -> dict[str, Any]:
    """What an earlier run left at `path`, when it was in the same environment; otherwise nothing measured.

    Args:
        any_machine: the same packages are enough: for accuracies, whose rows say what machine they are of.
    """
    here = environment(packages)
    if path.exists():
        earlier: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        same = ("python", "packages") if any_machine else tuple(here)
        if all(earlier["environment"].get(key) == here[key] for key in same):
            return earlier
    return {"environment": here, "models": {}}


def write_results(path: Path, results: dict[str, Any], page: str) -> None:
    """Write the JSON file at `path` and the page of tables beside it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    for target, text in ((path, json.dumps(results, indent=1) + "\n"), (path.with_suffix(".md"), page)):
        temporary = target.with_name(f".{target.name}.tmp")
        temporary.write_text(text, encoding="utf-8")
        temporary.replace(target)
