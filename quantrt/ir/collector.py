# SPDX-License-Identifier: Apache-2.0
"""Python's collector of cycles, put off while large graphs are made and while runs are timed.

A graph of five thousand nodes is a hundred thousand objects; each time that some more were made the collector
walks over all of them, and finds nothing: as long again as making them takes (SDXL's UNet: 5 s of 13).
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["without_collector"]


@contextmanager
def without_collector() -> Iterator[None]:
    """Nothing is collected in the block, or in a function that this decorates; all as before behind it."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
