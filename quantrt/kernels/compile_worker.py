# SPDX-License-Identifier: Apache-2.0
"""A process that compiles kernels: one JSON request per line in, one JSON answer per line out.

    {"spec": ..., "capability": 90}  ->  {"cubin": base64, "symbol": ..., ...}  or  {"error": "one line"}

A process of its own because a compiler can abort; JSON because an answer may not run code. Everything the
compiler prints goes to a file, of which a failure's last error is kept.
"""

from __future__ import annotations

import base64
import os
import re
import sys
import tempfile
from functools import partial
from typing import IO, Any

from quantrt.errors import QuantRtError
from quantrt.kernels.compile import compile_kernel
from quantrt.kernels.kernel_text import spec_from_json
from quantrt.worker_process import ERROR, serve

__all__ = ["answer", "main", "reason"]

MAX_REASON_CHARACTERS = 300


def main() -> None:
    """Answer requests until standard input ends."""
    with os.fdopen(os.dup(1), "w", encoding="utf-8") as answers, tempfile.TemporaryFile() as said:
        os.dup2(said.fileno(), 1)
        os.dup2(said.fileno(), 2)
        serve(partial(answer, said=said), sys.stdin, answers)


def answer(request: dict[str, Any], said: IO[bytes]) -> dict[str, Any]:
    """The machine code, or why there is none; `said` is where the compiler's own output goes."""
    capability = request["capability"]
    said.seek(0)
    said.truncate()
    try:
        kernel = compile_kernel(spec_from_json(request["spec"]), capability)
    except Exception as error:  # noqa: BLE001  the compiler's errors have no common class
        sys.stdout.flush()
        said.seek(0)
        return {ERROR: reason(error, said.read().decode("utf-8", "replace"))}
    return {
        "cubin": base64.b64encode(kernel.cubins[capability]).decode("ascii"),
        "symbol": kernel.symbol,
        "shared_bytes": kernel.shared_bytes[capability],
        "extra_pointers": kernel.extra_pointers,
        "registers": kernel.registers,
        "spills": kernel.spills,
        "overlaps": kernel.overlaps,
        "facts": dict(kernel.facts),
    }


def reason(error: Exception, said: str) -> str:
    """One line: the last error the compiler named, or else the last line of the exception."""
    if isinstance(error, QuantRtError):
        return error.message
    lines = [line.strip() for line in f"{said}\n{error}".splitlines() if line.strip()]
    named = [line for line in lines if re.search(r"\b(error|fatal)\s*:", line)]
    last = (named or [line for line in str(error).splitlines() if line.strip()] or [""])[-1].strip()
    return f"{type(error).__name__}: {last}"[:MAX_REASON_CHARACTERS]


if __name__ == "__main__":
    main()
