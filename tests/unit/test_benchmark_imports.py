# SPDX-License-Identifier: Apache-2.0
"""Benchmarks import only what there is: most of them run on no machine that runs the tests."""

import ast
import importlib.util
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
OWN = ("quantrt", "benchmarks", "tests")


def imported(path: Path) -> Iterator[tuple[str, str]]:
    """Every module of this repository that a file imports from, with the name."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] in OWN:
            yield from ((node.module or "", alias.name) for alias in node.names)


def defined(module: str) -> set[str]:
    """The names that a module's file gives a meaning to."""
    spec = importlib.util.find_spec(module)
    assert spec is not None, module
    assert spec.origin is not None, module
    tree = ast.parse(Path(spec.origin).read_text(encoding="utf-8"))
    found = {node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.ClassDef)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            found |= {alias.asname or alias.name for alias in node.names}
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            found.add(node.id)
    folder = Path(spec.origin).parent
    return found | {path.stem for path in folder.iterdir()} if spec.submodule_search_locations else found


@pytest.mark.parametrize("path", sorted((ROOT / "benchmarks").glob("*.py")), ids=lambda path: path.stem)
def test_what_a_benchmark_imports_is_there(path: Path):
    missing = [f"{module}.{name}" for module, name in imported(path) if name not in defined(module)]
    assert missing == []
