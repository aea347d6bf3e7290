# SPDX-License-Identifier: Apache-2.0
"""Whether two ways to run a model are one computation."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

__all__ = ["Arrays", "have_same_bits"]

Arrays = Mapping[str, np.ndarray[Any, Any]]
"""Inputs or outputs of a run, by name."""


def have_same_bits(wanted: Arrays, found: Arrays) -> bool:
    """Whether all outputs are the same, each number of them; of floats, NaNs are alike."""
    return all(
        np.array_equal(array, found[name], equal_nan=array.dtype.kind == "f")
        for name, array in wanted.items()
    )
