# SPDX-License-Identifier: Apache-2.0
"""A bounded pool of things that only one thread may use at a time."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from typing import Generic, TypeVar

__all__ = ["RequestPool"]

T = TypeVar("T")


class RequestPool(Generic[T]):
    """Hands out requests; makes one when none is idle and fewer than `limit` exist, else waits for one."""

    def __init__(self, make: Callable[[], T], limit: int) -> None:
        self._make = make
        self._limit = limit
        self._idle: queue.SimpleQueue[T] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self.made = 0

    def take(self) -> T:
        """An idle request, the caller's until `give`."""
        try:
            return self._idle.get_nowait()
        except queue.Empty:
            pass
        with self._lock:
            may_make = self.made < self._limit
            self.made += may_make
        if not may_make:
            return self._idle.get()
        try:
            return self._make()
        except BaseException:
            with self._lock:
                self.made -= 1
            raise

    def give(self, request: T) -> None:
        """Return a request that `take` handed out."""
        self._idle.put(request)
