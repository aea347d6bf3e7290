# SPDX-License-Identifier: Apache-2.0
"""docs/layout.md describes what exists: every path in it is there, and no package is left out."""

import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
LAYOUT = (ROOT / "docs" / "layout.md").read_text(encoding="utf-8")
PATHS = re.findall(r"^\| `([^`]+)` \|", LAYOUT, flags=re.MULTILINE)


def layers() -> list[list[str]]:
    """The layers of the import contract, lowest first."""
    pyproject = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    contracts = pyproject["tool"]["importlinter"]["contracts"]
    (contract,) = (contract for contract in contracts if contract["containers"] == ["quantrt"])
    return [re.findall(r"\w+", layer) for layer in reversed(contract["layers"])]


def test_the_tables_were_found():
    assert len(PATHS) > 10


@pytest.mark.parametrize("path", PATHS)
def test_a_described_path_exists(path: str):
    assert (ROOT / path).exists()


def test_every_module_of_the_package_is_described():
    package = ROOT / "quantrt"
    folders = {f"quantrt/{init.parent.name}/" for init in package.glob("*/__init__.py")}
    files = {f"quantrt/{file.name}" for file in package.glob("*.py") if not file.name.startswith("__")}
    assert folders | files <= set(PATHS)


def test_every_folder_below_it_is_named():
    """By its path, or behind its parent's; a family of kernels is told of by `kernels/` alone."""
    lines = LAYOUT.splitlines()
    for init in (ROOT / "quantrt").glob("*/*/**/__init__.py"):
        folder = init.parent.relative_to(ROOT)
        around = [line for line in lines if f"`{folder.parent}/" in line]
        is_named = any(f"`{name}/`" in line for line in around for name in (folder, folder.name))
        assert is_named or folder.parts[1] == "kernels", folder


def test_the_drawn_order_is_that_of_the_contract():
    (block,) = re.findall(r"```\n(errors.*?)```", LAYOUT, flags=re.DOTALL)
    drawn = [set(line.split()) for line in block.splitlines()]
    present = [{name for name in layer if exists(name)} for layer in layers()]
    assert drawn == [layer for layer in present if layer]


def exists(name: str) -> bool:
    return (ROOT / "quantrt" / name / "__init__.py").exists() or (ROOT / "quantrt" / f"{name}.py").exists()
