# SPDX-License-Identifier: Apache-2.0
"""The row of a build's report about the candidate that it shipped."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

__all__ = ["shipped_row"]


def shipped_row(report: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """The candidate that was shipped; None where the report tells none, as of an engine built elsewhere."""
    name = report.get("verdict", {}).get("shipped")
    return next((row for row in report.get("candidates", ()) if row["name"] == name), None)
