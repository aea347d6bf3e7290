# SPDX-License-Identifier: Apache-2.0
"""The part of a library's error message that a user can use."""

from __future__ import annotations

import re

__all__ = ["library_reason"]

MAX_CHARACTERS = 400

_NOISE = (
    re.compile(r"^\[ONNXRuntimeError\] : \d+ : [A-Z_]+ : "),
    re.compile(r"^Exception from \S+:\d*$"),
    re.compile(r"/onnxruntime_src/\S+ "),
    re.compile(r" at src/\S+:\d+:?$"),
)


def library_reason(error: Exception) -> str:
    """What a library complains about, on one line, without its source positions."""
    lines = []
    for line in str(error).splitlines():
        text = line.strip()
        for pattern in _NOISE:
            text = pattern.sub("", text)
        if text:
            lines.append(text.strip())
    reason = "; ".join(lines) or type(error).__name__
    return reason if len(reason) <= MAX_CHARACTERS else reason[: MAX_CHARACTERS - 3] + "..."
