# SPDX-License-Identifier: Apache-2.0
"""Names of layers that libraries do not keep apart."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

__all__ = ["unique_names"]


def unique_names(names: Sequence[str]) -> list[str]:
    """The names in their order, the second of equal ones with "#2" behind it, and so on."""
    seen: Counter[str] = Counter()
    found = []
    for name in names:
        seen[name] += 1
        found.append(name if seen[name] == 1 else f"{name}#{seen[name]}")
    return found
