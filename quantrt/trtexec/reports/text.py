# SPDX-License-Identifier: Apache-2.0
"""The lines that begin and end a run, and which trtexec it answers for."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

__all__ = ["AS_TRTEXEC", "mark_line"]

AS_TRTEXEC = "10.16"
"""The trtexec whose text is printed."""

_VERSION_NUMBER = 101600
"""NV_TENSORRT_VERSION of it: major * 10000 + minor * 100 + patch."""


def mark_line(word: str, words: Sequence[str]) -> str:
    """`&&&& RUNNING TensorRT.trtexec [TensorRT v101600] # trtexec --onnx=model.onnx`.

    Args:
        word: "RUNNING", "PASSED" or "FAILED".
        words: of the command line.
    """
    command = " ".join(["trtexec", *(shlex.quote(word) for word in words)])
    return f"&&&& {word} TensorRT.trtexec [TensorRT v{_VERSION_NUMBER}] # {command}"
