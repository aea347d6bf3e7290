# SPDX-License-Identifier: Apache-2.0
"""The size budget of the package: a file or a function that outgrows it is split, not excused."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
MAX_FILE_LINES = 400
MAX_FUNCTION_LINES = 60
MAX_KERNEL_LINES = 150
"""Of what Triton compiles, with an argument for every size and stride."""


def functions(source: str) -> Iterator[tuple[str, int, int]]:
    """Name, length in lines and limit of every function of `source`, decorators not counted."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            decorators = {ast.unparse(decorator) for decorator in node.decorator_list}
            is_kernel = not decorators.isdisjoint(("triton.jit", "gluon.jit"))
            limit = MAX_KERNEL_LINES if is_kernel else MAX_FUNCTION_LINES
            yield node.name, node.end_lineno - node.lineno + 1, limit


def over_budget(name: str, source: str) -> list[str]:
    """One line of text per violation in `source`."""
    found = []
    line_count = len(source.splitlines())
    if line_count > MAX_FILE_LINES:
        found.append(f"{name}: {line_count} lines, at most {MAX_FILE_LINES}")
    found += [
        f"{name}: {function}() has {length} lines, at most {limit}"
        for function, length, limit in functions(source)
        if length > limit
    ]
    return found


def package_files() -> list[Path]:
    return sorted((ROOT / "quantrt").rglob("*.py"))


def test_the_package_is_there():
    assert package_files(), f"no Python file under {ROOT / 'quantrt'}"


def test_files_and_functions_stay_within_the_budget():
    found = [
        text
        for path in package_files()
        for text in over_budget(str(path.relative_to(ROOT)), path.read_text(encoding="utf-8"))
    ]
    assert not found, "\n".join(found)


def test_every_file_opens_with_one_licence_line_and_a_docstring():
    found = []
    for path in package_files():
        source = path.read_text(encoding="utf-8")
        if not source.startswith("# SPDX-License-Identifier: Apache-2.0\n"):
            found.append(f"{path.relative_to(ROOT)}: the first line is not the SPDX line")
        if ast.get_docstring(ast.parse(source)) is None:
            found.append(f"{path.relative_to(ROOT)}: no module docstring")
    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    ("decorator", "body_lines", "violations"),
    [
        ("", MAX_FUNCTION_LINES - 1, 0),
        ("", MAX_FUNCTION_LINES, 1),
        ("", MAX_FILE_LINES, 2),
        ("@triton.jit\n", MAX_KERNEL_LINES - 1, 0),
        ("@triton.jit\n", MAX_KERNEL_LINES, 1),
        ("@cache\n", MAX_FUNCTION_LINES, 1),
    ],
    ids=[
        "at the limit",
        "function too long",
        "function and file too long",
        "kernel at the limit",
        "kernel too long",
        "another decorator",
    ],
)
def test_the_budget_counts(decorator: str, body_lines: int, violations: int):
    source = decorator + "def f():\n" + "    x = 1\n" * body_lines
    assert len(over_budget("f.py", source)) == violations
