# SPDX-License-Identifier: Apache-2.0
"""Engines for a GPU that were right at every batch size, known again by the next build.

    FILE.sizes    JSON beside the timing cache: a digest of all that such a finding follows from, for each

It follows from the program with its weights and machine code, the samples, the sizes that were tried, the
GPU, its libraries and the code that runs programs. What was wrong is not kept: it is looked at again.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from quantrt.assign.batch_sizes import Trial
from quantrt.calibrate.sample_hash import hash_sample
from quantrt.errors import DataError
from quantrt.ir.atomic import replace_file
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
        self._environment = [dict(environment), source_digest(SOURCES)]

    def fault(
        self,
        model: LibraryModel,
        told: Sequence[str],
        trials: Sequence[Trial],
        find: Callable[[], str | None],
    ) -> str | None:
        """What a program computes wrongly; found where no earlier build has found it right.

        Args:
            told: names of the outputs that are compared, and what else the finding depends on.
            trials: what it is tried at.

        Raises:
            DataError: the file is damaged; names it.
            DeviceError: it cannot be written.
        """
        key = self._key(model, told, trials)
        if key in self._read():
            return None
        found = find()
        if found is None:
            data = {"format": FORMAT, "right": sorted({*self._read(), key})}
            with replace_file(self.path) as file:
                file.write((json.dumps(data, indent=1) + "\n").encode())
        return found

    def _key(self, model: LibraryModel, told: Sequence[str], trials: Sequence[Trial]) -> str:
        tried = [[hash_sample(trial.inputs), list(trial.sizes)] for trial in trials]
        origin = [program_digest(model), list(told), tried, self._environment]
        return hashlib.sha256(json.dumps(origin, sort_keys=True).encode()).hexdigest()

    def _read(self) -> list[str]:
        if not self.path.exists():
            return []
        try:
            data = json.loads(self.path.read_text(encoding="utf-8"))
            is_ours = data["format"] == FORMAT and all(isinstance(key, str) for key in data["right"])
        except (KeyError, TypeError, ValueError, OSError) as error:
            hint = f"`rm '{self.path}'`: it is made anew"
            raise DataError(f"cannot read '{self.path}'", got=repr(error)[:200], hint=hint) from error
        return list(data["right"]) if is_ours else []
