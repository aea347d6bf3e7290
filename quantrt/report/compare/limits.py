# SPDX-License-Identifier: Apache-2.0
"""Limits on how far a tensor may be from another."""

from __future__ import annotations

from collections.abc import Mapping

from quantrt.config import CompareConfig
from quantrt.reference.metrics import Error

__all__ = ["limits_text", "violations_of"]


def violations_of(error: Error, config: CompareConfig) -> list[str]:
    """The limits that do not hold. NaN holds none of them, hence `not (a >= b)`."""
    violations = []
    if config.min_sqnr_db is not None and not error.sqnr_db >= config.min_sqnr_db:
        violations.append(f"SQNR < {config.min_sqnr_db:g} dB")
    if config.min_cosine is not None and not error.cosine >= config.min_cosine:
        violations.append(f"cosine < {config.min_cosine:g}")
    if config.max_abs is not None and not error.max_abs <= config.max_abs:
        violations.append(f"max abs > {config.max_abs:g}")
    return violations


def limits_text(limits: Mapping[str, float | None]) -> list[str]:
    """A phrase for each limit that is checked."""
    words = {"min_sqnr_db": "SQNR >= {:g} dB", "min_cosine": "cosine >= {:g}", "max_abs": "max abs <= {:g}"}
    return [text.format(limits[name]) for name, text in words.items() if limits[name] is not None]
