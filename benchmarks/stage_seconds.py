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
        self._now = stage, ""
        self._began_s = time.perf_counter()
        self._since_s = cpu_s()
        self._spent_s: dict[tuple[str, str], float] = {}

    def __call__(self, event: Event) -> None:
        """A build has come so far."""
        self.begin(event.stage, event.candidate)

    def begin(self, stage: str, candidate: str = "") -> None:
        """What comes now is of this stage, and in it of one candidate."""
        now_s = cpu_s()
        self._spent_s[self._now] = self._spent_s.get(self._now, 0.0) + now_s - self._since_s
        self._now, self._since_s = (stage, candidate), now_s

    def figures(self) -> dict[str, object]:
        """JSON-ready: what passed, what was computed, and of that each stage, and in it each candidate."""
        self.begin(*self._now)
        stages: dict[str, float] = {}
        candidates: dict[str, dict[str, float]] = {}
        for (stage, candidate), spent_s in self._spent_s.items():
            stages[stage] = stages.get(stage, 0.0) + spent_s
            if candidate:
                candidates.setdefault(stage, {})[candidate] = spent_s
        return {
            "made_s": time.perf_counter() - self._began_s,
            "made_cpu_s": sum(stages.values()),
            "stages_cpu_s": stages,
            "candidates_cpu_s": candidates,
        }


def cpu_s() -> float:
    """Of this process and of its children that have ended, in user and system mode."""
    used = os.times()
    return used.user + used.system + used.children_user + used.children_system
