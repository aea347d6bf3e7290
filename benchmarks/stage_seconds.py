# SPDX-License-Identifier: Apache-2.0
"""Where the seconds of the processor go while a model is made, stage by stage."""

__all__ = ["StageSeconds", "cpu_s"]

import os
import time

from quantrt.prepare import Event


class StageSeconds:
    """Seconds that all cores computed since it was made, by stage; of a build too, as `on_event`.

    Args:
        stage: that is going on now.
    """

    def __init__(self, stage: str) -> None:
        self._stage = stage
        self._began_s = time.perf_counter()
        self._since_s = cpu_s()
        self._spent_s: dict[str, float] = {}

    def __call__(self, event: Event) -> None:
        """A build has come so far."""
        self.begin(event.stage)

    def begin(self, stage: str) -> None:
        """What comes now is of this stage."""
        now_s = cpu_s()
        self._spent_s[self._stage] = self._spent_s.get(self._stage, 0.0) + now_s - self._since_s
        self._stage, self._since_s = stage, now_s

    def figures(self) -> dict[str, object]:
        """JSON-ready: what passed, what was computed, and what of that in each stage."""
        self.begin(self._stage)
        return {
            "made_s": time.perf_counter() - self._began_s,
            "made_cpu_s": sum(self._spent_s.values()),
            "stages_cpu_s": dict(self._spent_s),
        }


def cpu_s() -> float:
    """Of this process and of its children that have ended, in user and system mode."""
    used = os.times()
    return used.user + used.system + used.children_user + used.children_system
