# SPDX-License-Identifier: Apache-2.0
"""A library that had no memory, told apart from one that cannot run a model."""

from __future__ import annotations

import re

from quantrt.errors import DeviceError

__all__ = ["NO_MEMORY_HINT", "check_memory"]

NO_MEMORY_HINT = "fewer or smaller samples at once (--batch, --batch-size), or more memory"

_NO_MEMORY = re.compile(r"allocate (memory|\d)|bad_alloc|out of memory|not enough memory", re.IGNORECASE)
"""Of ONNX Runtime's arena, of C++ itself, of OpenVINO's and numpy's."""


def check_memory(error: Exception) -> None:
    """Fail where what a library complains of is memory; whoever caught the error goes on otherwise.

    Raises:
        DeviceError: it is.
    """
    found = _NO_MEMORY.search(str(error))
    if found is not None:
        line = str(error)[: found.start()].count("\n")
        reason = str(error).splitlines()[line].rpartition(") ")[2]
        raise DeviceError("ran out of memory", got=reason[:200], hint=NO_MEMORY_HINT) from error
