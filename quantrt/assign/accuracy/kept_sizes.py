# SPDX-License-Identifier: Apache-2.0
"""Engines for a GPU that were right at every batch size, known again by the next build.

    FILE.sizes    JSON beside the timing cache: the sizes, by the digest of all that the finding follows from

It follows from the program with its weights and machine code, the samples, the sizes that were tried, the
GPU, its libraries and the code that runs programs. What was wrong is not kept: it is looked at again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from quantrt.assign.accuracy.batch_sizes import Trial
from quantrt.calibrate.sample_hash import hash_sample
from quantrt.ir.kept_rows import KeptRows, digest_of
from quantrt.plan.plan import LibraryModel
from quantrt.plan.program_digest import program_digest
from quantrt.source_digest import source_digest

__all__ = ["KeptSizes"]

SUFFIX = ".sizes"
FORMAT = "quantrt kept batch sizes"
SOURCES = ("assign", "ir", "kernels", "operators", "plan", "reference", "runtime")
"""Folders whose code runs programs and compares what they make."""


class KeptSizes:
    """The file of one timing cache.

    Args:
        timing_cache: whose name the file's begins with.
        environment: what a program's values depend on beside itself, as text by name.
    """

    def __init__(self, timing_cache: Path, environment: Mapping[str, str]) -> None:
        self.path = timing_cache.with_name(timing_cache.name + SUFFIX)
        self._rows = KeptRows(self.path, FORMAT, "right", list)
        self._environment = [dict(environment), source_digest(SOURCES)]

    def key(self, model: LibraryModel, told: Sequence[str], trials: Sequence[Trial]) -> str:
        """The digest of all that such a finding follows from.

        Args:
            told: names of the outputs that are compared, and what else it depends on.
            trials: what the program is tried at.
        """
        tried = [[hash_sample(trial.inputs), list(trial.sizes)] for trial in trials]
        return digest_of([program_digest(model), list(told), tried, self._environment])

    def is_right(self, key: str) -> bool:
        """Whether an earlier build has found it right."""
        return key in self._rows.load()

    def keep(self, key: str, trials: Sequence[Trial]) -> None:
        """That it was found right at the sizes of these."""
        self._rows.add(key, [list(trial.sizes) for trial in trials])
