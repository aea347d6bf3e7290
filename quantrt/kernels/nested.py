# SPDX-License-Identifier: Apache-2.0
"""Arguments by the parameters of a kernel's function, where one takes several as a tuple.

A spec names every argument, in the order in which they lie in memory. What a kernel stores, y0_ptr, y1_ptr
and so on, is one parameter of its function, `pointers`; operands of its epilogue, arg0, arg1 and so on, are
another, `slots`.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any

__all__ = ["are_filled", "nested", "paths_of"]

TUPLES = {"pointers": re.compile(r"y(\d+)_ptr"), "slots": re.compile(r"arg(\d+)")}
"""Parameters that are tuples, and the names of their elements, which are numbered."""

Path = tuple[int, ...]
"""(number of a parameter,), or (that, place in its tuple)."""


def paths_of(names: Collection[str], parameters: Sequence[str]) -> dict[str, Path]:
    """Where arguments are; names that no parameter takes are left out."""
    paths: dict[str, Path] = {}
    for number, parameter in enumerate(parameters):
        if parameter in TUPLES:
            found = [TUPLES[parameter].fullmatch(name) for name in names]
            paths |= {match[0]: (number, int(match[1])) for match in found if match}
        elif parameter in names:
            paths[parameter] = (number,)
    return paths


def are_filled(paths: Mapping[str, Path], parameters: Sequence[str]) -> bool:
    """Whether every parameter has its argument, and no tuple has gaps."""
    places = set(paths.values())
    before = {(*path[:-1], place) for path in places if len(path) > 1 for place in range(path[-1])}
    return {path[0] for path in places} == set(range(len(parameters))) and before <= places


def nested(values: Mapping[str, Any], parameters: Sequence[str]) -> dict[str, Any]:
    """What belongs to arguments, such as their types, by parameter: in a tuple for one that takes several."""
    paths = paths_of(values, parameters)
    found: dict[str, Any] = {}
    for name in sorted(paths, key=lambda name: paths[name]):
        parameter = parameters[paths[name][0]]
        found[parameter] = (*found.get(parameter, ()), values[name]) if len(paths[name]) > 1 else values[name]
    return found
