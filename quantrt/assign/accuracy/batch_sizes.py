# SPDX-License-Identifier: Apache-2.0
"""Whether an engine says the same of a sample whatever the number of samples that it runs at once.

Libraries choose kernels by shapes, so an engine whose accuracy was measured at one batch size may be wrong at
another. A few sizes are run, in an executor of its own, and held against the size that accuracy was measured
at; where they differ, the float model says whether that is noise.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from quantrt.assign.accuracy.accuracy import Run, comparable
from quantrt.errors import ModelError
from quantrt.ir.profile import Profile, at_shapes
from quantrt.reference.metrics import Error

__all__ = ["Trial", "trials", "why_wrong"]

Array = np.ndarray[Any, Any]
Arrays = Mapping[str, Array]

USUAL = (1, 2, 4, 3)
"""Without profiles."""

SAME_RATIO = 1e-4
"""Noise power between two sizes that is a code here and there: 40 dB."""

WORSE_RATIO = 4.0
"""Noise power at another size over that at the usual one, above which it is wrong: 6 dB, twice the error."""


@dataclass(frozen=True)
class Trial:
    """Samples at the usual batch size, and the sizes to hold against it."""

    inputs: Arrays
    sizes: tuple[int, ...]


def trials(samples: Arrays, rows: int, profiles: Sequence[Profile]) -> tuple[Trial, ...]:
    """What to try: of every profile its least, best and largest batch and one between each two.

    Args:
        samples: along axis 0 of every input; cut or repeated as shapes want.
        rows: the usual batch size where there are no profiles; a few small ones up to it are tried then.
    """
    if not profiles:
        shapes = {name: (rows, *array.shape[1:]) for name, array in samples.items()}
        return (Trial(at_shapes(samples, shapes), tuple(size for size in USUAL if size <= rows)),)
    return tuple(Trial(at_shapes(samples, profile.best), _sizes(profile)) for profile in profiles)


def _sizes(profile: Profile) -> tuple[int, ...]:
    rows = next(iter(profile.ranges.values()))
    least, best, most = rows.least[0], rows.best[0], rows.most[0]
    return tuple(dict.fromkeys((least, (least + best) // 2, best, (best + most) // 2, most)))


def why_wrong(run: Run, float_run: Run, trial: Trial, wanted: Arrays) -> str | None:
    """What an engine computes wrongly at one of these batch sizes; None where it is right at all.

    Args:
        run: of a newly opened engine.
        float_run: of the float model; called only where sizes differ.
        wanted: the engine's outputs at the usual size.
    """
    inputs = trial.inputs
    rows = len(next(iter(inputs.values())))
    counted = [
        name for name, array in wanted.items() if array.dtype.kind == "f" and len(_rows(array)) == rows
    ]
    for size in trial.sizes:
        fed = at_shapes(inputs, {name: (size, *array.shape[1:]) for name, array in inputs.items()})
        try:
            found = run(fed)
        except ModelError as error:  # what was compiled at one size may not be at another
            if _is_refused(float_run, fed):
                continue  # the model itself has no such size
            return f"it does not run at batch {size}: {error.message}"
        if _error(wanted, found, counted).noise_ratio <= SAME_RATIO:
            continue
        usual = _error(float_run(inputs), wanted, counted)
        here = _error(float_run(fed), found, counted)
        limit = max(WORSE_RATIO * usual.noise_ratio, SAME_RATIO)
        if not here.noise_ratio <= limit:  # a NaN is not
            return (
                f"its outputs are wrong at batch {size}: {here.sqnr_db:z.1f} dB beside the float model, "
                f"and {usual.sqnr_db:z.1f} dB at batch {rows}"
            )
    return None


def _is_refused(run: Run, fed: Arrays) -> bool:
    try:
        run(fed)
    except ModelError:
        return True
    return False


def _error(wanted: Arrays, found: Arrays, names: Sequence[str]) -> Error:
    """Of the samples that both have."""
    error = Error()
    for name in names:
        a, b = _rows(wanted[name]), _rows(found[name])
        count = min(len(a), len(b))
        error.add(*comparable(a[:count], b[:count]))
    return error


def _rows(array: Array) -> Array:
    return array if array.ndim else array[None]
