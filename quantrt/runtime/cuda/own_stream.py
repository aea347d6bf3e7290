# SPDX-License-Identifier: Apache-2.0
"""A stream of its own, and the order of what a lane is given there and on its callers' streams.

A lane's work goes to one stream at a time. Where it goes on in another, an event makes that one wait for all
that the lane was given before; on a stream that stays the same nothing has to be said, so that a caller who
repeats a run pays for launching a CUDA graph alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

__all__ = ["OwnStream"]


class OwnStream:
    """A stream that does not wait for the default one; for one thread at a time.

    Attributes:
        stream: torch's.
    """

    def __init__(self, device: torch.device) -> None:
        self.stream: torch.cuda.Stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
        self._index: int = self.stream.device_index  # a number: torch takes its time over anything else
        self._latest = self.stream
        self._event = torch.cuda.Event()  # type: ignore[no-untyped-call]

    @contextmanager
    def current(self) -> Iterator[None]:
        """The stream is torch's current one, and its device too; it waits for all that the lane was given.

        torch's context manager does the same in a multiple of the time.
        """
        self._go_on(self.stream)
        if torch.cuda.current_device() != self._index:
            with torch.cuda.stream(self.stream):
                yield
            return
        caller = torch.cuda.current_stream(self._index)
        torch.cuda.set_stream(self.stream)
        try:
            yield
        finally:
            torch.cuda.set_stream(caller)

    def at_caller(self) -> torch.cuda.Stream:
        """The stream that is current on the device; it waits for all that the lane was given."""
        caller = torch.cuda.current_stream(self._index)
        self._go_on(caller)
        return caller

    def wait(self) -> None:
        """Until all that the lane was given is done."""
        self._latest.synchronize()

    def _go_on(self, stream: torch.cuda.Stream) -> None:
        if stream != self._latest:
            self._event.record(self._latest)
            stream.wait_event(self._event)
            self._latest = stream
