# SPDX-License-Identifier: Apache-2.0
"""--errorOnTimingCacheMiss: whether a build on a GPU took timings that its timing cache did not have."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from quantrt.errors import DataError, DeviceError, UsageError

__all__ = ["check_no_miss", "known_timings"]

Timings = frozenset[tuple[str, str]]
"""(workload, tactic) of each."""

SHOWN = 3


def known_timings(path: Path | None) -> Timings:
    """What a timing cache has before the build.

    Raises:
        UsageError: there is no timing cache to look into.
        DataError: the file is none.
    """
    if path is None or not path.exists():
        raise UsageError(
            "--errorOnTimingCacheMiss needs a timing cache to find timings in",
            got="none" if path is None else f"no file '{path}'",
            hint="--timingCacheFile=FILE of an earlier build",
        )
    try:
        data: Any = json.loads(path.read_text(encoding="utf-8"))
        return frozenset(
            (key, tactic) for key, entry in data["workloads"].items() for tactic in entry["tactics"]
        )
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise DataError(
            f"cannot read '{path}': it is no timing cache of QuantRT's", got=str(error)
        ) from error


def check_no_miss(path: Path, known: Timings) -> None:
    """Fail if the build added to the timing cache.

    Raises:
        DeviceError: it did; names the workloads.
    """
    missed = known_timings(path) - known
    if not missed:
        return
    workloads = sorted({workload for workload, _ in missed})
    more = f" and {len(workloads) - SHOWN} more" if len(workloads) > SHOWN else ""
    raise DeviceError(
        f"{len(missed)} timings of {len(workloads)} workloads were not in '{path}'",
        got=", ".join(workloads[:SHOWN]) + more,
        hint="the same command again: they are in it now",
    )
