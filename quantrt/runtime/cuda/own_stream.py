# SPDX-License-Identifier: Apache-2.0
"""A stream of its own, ordered with its callers' streams by two events that are made once.

torch's context manager and `wait_stream` do the same; entering and leaving a stream by them takes longer than
launching a CUDA graph.
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
        self._device = self.stream.device
        self._before, self._after = (torch.cuda.Event() for _ in range(2))  # type: ignore[no-untyped-call]

    def caller(self) -> torch.cuda.Stream:
        """The stream that is current on its device."""
        return torch.cuda.current_stream(self._device)

    @contextmanager
    def current(self) -> Iterator[None]:
        """The stream is torch's current one, and its device too."""
        if torch.cuda.current_device() != self._device.index:
            with torch.cuda.stream(self.stream):
                yield
            return
        caller = self.caller()
        torch.cuda.set_stream(self.stream)
        try:
            yield
        finally:
            torch.cuda.set_stream(caller)

    def follow(self, caller: torch.cuda.Stream) -> None:
        """What is given to the stream from now on waits for what the caller's has."""
        self._before.record(caller)
        self.stream.wait_event(self._before)

    def precede(self, caller: torch.cuda.Stream) -> None:
        """What is given to the caller's stream from now on waits for what the stream has."""
        self._after.record(self.stream)
        caller.wait_event(self._after)
