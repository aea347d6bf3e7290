# SPDX-License-Identifier: Apache-2.0
"""Arrays by name over a dataset, for what needs all of them at once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

__all__ = ["Collected"]

Array = np.ndarray[Any, Any]


@dataclass
class Collected:
    """Arrays by name, batch by batch."""

    arrays: dict[str, list[Array]] = field(default_factory=dict)
    counts: list[int] = field(default_factory=list)

    def add(self, arrays: Mapping[str, Array], count: int) -> None:
        """Keep the arrays of one batch of `count` samples."""
        self.counts.append(count)
        for name, array in arrays.items():
            self.arrays.setdefault(name, []).append(array)

    def joined(self) -> dict[str, Any]:
        """Each name's samples: one array [samples, ...], or a list of arrays where shapes differ."""
        return {name: self._join(parts) for name, parts in self.arrays.items()}

    def _join(self, parts: list[Array]) -> Array | list[Array]:
        has_rows = [part.ndim > 0 and len(part) == n for part, n in zip(parts, self.counts, strict=True)]
        if all(has_rows) and len({part.shape[1:] for part in parts}) == 1:
            return np.concatenate(parts)
        return [
            row for part, split in zip(parts, has_rows, strict=True) for row in (part if split else [part])
        ]
