# SPDX-License-Identifier: Apache-2.0
"""SIGTERM and SIGHUP end a command as Ctrl-C does: what was begun is tidied up, and the exit code says why.

Without a handler the system ends a process where it stands, with temporary files in place; and as the first
process of a container, which has no such default, it would not be ended at all.
"""

from __future__ import annotations

import signal
from types import FrameType
from typing import NoReturn

__all__ = ["EndedBySignal", "end_as_by_control_c"]

SIGNALS = (signal.SIGTERM, signal.SIGHUP)


class EndedBySignal(KeyboardInterrupt):
    """One of these has come; the first argument is its number."""


def end_as_by_control_c() -> None:
    """Raise where a signal ends this process; one that the parent had ignored, as `nohup` does, stays so."""
    for number in SIGNALS:
        if signal.getsignal(number) is signal.SIG_DFL:
            signal.signal(number, _raise)


def _raise(number: int, frame: FrameType | None) -> NoReturn:
    for other in SIGNALS:
        signal.signal(other, signal.SIG_DFL)  # once more ends it at once
    raise EndedBySignal(number)
