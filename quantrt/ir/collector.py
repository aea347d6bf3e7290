# SPDX-License-Identifier: Apache-2.0
"""Python's collector of cycles, put off while large graphs are made and while runs are timed.

A graph of five thousand nodes is a hundred thousand objects; each time that some more were made the collector
walks over all of them, and finds nothing: as long again as making them takes (SDXL's UNet: 5 s of 13).
Behind the block it would walk over all of them once more as young, and then as less young: they are made old.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["leave_cycles", "without_collector"]

FROZEN = gc.get_freeze_count()
"""Objects that no collection looks at, before anything is done here: Python 3.12 has a few hundred."""

FEW = 5_000
"""Objects that are walked over in less time than it may take to count what others have frozen."""


@contextmanager
def without_collector() -> Iterator[None]:
    """Nothing is collected in the block, or in a function that this decorates.

    What was made by then is old behind it, unless it is little: a full collection alone looks at it.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            if gc.get_count()[0] > FEW and gc.get_freeze_count() <= FROZEN:
                gc.freeze()  # but not where others froze something, which stays so
                gc.unfreeze()
            gc.enable()


def leave_cycles() -> None:
    """For a process that is about to end: the system frees what is left, and no search for cycles is made.

    Python makes one more as it ends; among what a large model and its engines leave it takes seconds (SDXL's
    UNet: 1.2 million objects).
    """
    gc.freeze()
