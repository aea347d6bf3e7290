# SPDX-License-Identifier: Apache-2.0
"""Patterns of names in which "*" alone is special, however many brackets and question marks a name has."""

from __future__ import annotations

from fnmatch import fnmatchcase

__all__ = ["as_glob", "is_meant", "literal"]


def is_meant(name: str, pattern: str) -> bool:
    """Whether a pattern means a name: it is the name itself, or fits it with "*" for any text."""
    return name == pattern or ("*" in pattern and fnmatchcase(name, as_glob(pattern)))


def as_glob(pattern: str) -> str:
    """The glob of `fnmatch` that a pattern is."""
    return pattern.replace("[", "[[]").replace("?", "[?]")


def literal(name: str) -> str:
    """The glob of `fnmatch` that one name alone fits."""
    return as_glob(name).replace("*", "[*]")
