# SPDX-License-Identifier: Apache-2.0
"""One timed run of an engine: when the host's call, the copies and the computation began and ended."""

from __future__ import annotations

from dataclasses import dataclass, fields

__all__ = ["Query"]


@dataclass(frozen=True, kw_only=True)
class Query:
    """One inference, in milliseconds since the first began.

    On a CPU nothing is copied: inputs and outputs take no time, and the call that enqueues also computes.

    Attributes:
        start_enqueue_ms, end_enqueue_ms: the host's call.
        start_h2d_ms, end_h2d_ms: inputs to the device.
        start_compute_ms, end_compute_ms: the engine.
        start_d2h_ms, end_d2h_ms: outputs from the device.
    """

    start_enqueue_ms: float
    end_enqueue_ms: float
    start_h2d_ms: float
    end_h2d_ms: float
    start_compute_ms: float
    end_compute_ms: float
    start_d2h_ms: float
    end_d2h_ms: float

    @property
    def enqueue_ms(self) -> float:
        """How long the host's call took."""
        return self.end_enqueue_ms - self.start_enqueue_ms

    @property
    def h2d_ms(self) -> float:
        """Copying the inputs."""
        return self.end_h2d_ms - self.start_h2d_ms

    @property
    def compute_ms(self) -> float:
        """Computing."""
        return self.end_compute_ms - self.start_compute_ms

    @property
    def d2h_ms(self) -> float:
        """Copying the outputs."""
        return self.end_d2h_ms - self.start_d2h_ms

    @property
    def latency_ms(self) -> float:
        """Copies and computation together, without waiting between them."""
        return self.h2d_ms + self.compute_ms + self.d2h_ms

    def shifted(self, shift_ms: float) -> Query:
        """The same as told by a clock that began `shift_ms` earlier."""
        return Query(**{field.name: getattr(self, field.name) + shift_ms for field in fields(self)})
