# SPDX-License-Identifier: Apache-2.0
"""Patterns of names: a star stands for anything, every other character for itself."""

from fnmatch import fnmatchcase

import pytest

from quantrt.ir.name_pattern import as_glob, is_meant, literal


@pytest.mark.parametrize(
    ("name", "pattern", "expected"),
    [
        ("/a/conv", "/a/conv", True),
        ("/a/conv", "/a/*", True),
        ("/b/conv", "/a/*", False),
        ("x[0].w", "x[0].*", True),
        ("x0.w", "x[0].*", False),
        ("ab", "?*", False),
        ("?b", "?*", True),
        ("A", "a", False),
    ],
)
def test_what_a_pattern_means(name: str, pattern: str, expected: bool):
    assert is_meant(name, pattern) is expected


def test_globs_fit_what_patterns_mean():
    assert fnmatchcase("x[0].w", as_glob("x[0].*"))
    assert fnmatchcase("x[*]?", literal("x[*]?"))
    assert not fnmatchcase("x[a]?", literal("x[*]?"))
