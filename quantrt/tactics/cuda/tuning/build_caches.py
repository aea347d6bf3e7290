# SPDX-License-Identifier: Apache-2.0
"""What a build takes over from earlier ones and leaves for later ones: timings, and machine code beside."""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from dataclasses import replace
from pathlib import Path

import torch

from quantrt.errors import DataError
from quantrt.gpu import GpuFacts
from quantrt.ir.kept_file import add_to_kept, warn_damaged
from quantrt.tactics.cuda.timing.code_cache import CodeCache, add_code, load_code, path_beside
from quantrt.tactics.cuda.timing.timing_cache import TimingCache, add_timings, load_timing_cache
from quantrt.tactics.cuda.tuning.choices import Choices

__all__ = ["BuildCaches"]

log = logging.getLogger(__name__)


class BuildCaches:
    """The files, read when it is made. Timings that are of no use here are logged as a warning.

    Attributes:
        timings, code: what is known so far.

    Args:
        path: of the timing cache; None: nothing is read, and nothing kept.
        environment: what timings depend on.
        device: where tactics are timed; None for a GPU that is not here: timings may be another machine's,
            and nothing is written. A CPU in the place of a GPU has no code.

    Raises:
        DataError: the file is no timing cache, or a damaged one; what lies beside it is made anew.
    """

    def __init__(
        self,
        path: str | None,
        environment: Mapping[str, str],
        gpu: GpuFacts,
        targets: Collection[int],
        device: torch.device | None,
    ) -> None:
        self._path = path
        self._environment = environment
        self._is_here = device is not None
        self._has_code = device is None or device.type == "cuda"
        self._capabilities = {gpu.capability, *targets}
        self.timings = self._load_timings()
        self.code = self._load_code(gpu)
        self._saved_code = self.code

    def add(self, choices: Choices) -> None:
        """Take what tuning timed and compiled."""
        self.timings = choices.cache
        self.code = _both(self.code, CodeCache(choices.kernels, choices.plans))

    def save(self) -> None:
        """Add the timings to the file's, and the code where there is more of it than was saved last.

        See `add_to_kept`.
        """
        if self._path is None or not self._is_here:
            return
        path, beside = Path(self._path), path_beside(self._path)
        with add_to_kept(path):
            add_timings(self.timings, path)
        if self._has_code and self.code != self._saved_code:
            with add_to_kept(beside):
                add_code(self.code, beside, self._environment)
            self._saved_code = self.code

    def _load_timings(self) -> TimingCache:
        if self._path is None:
            return TimingCache(self._environment)
        found = load_timing_cache(Path(self._path), self._environment, is_elsewhere=not self._is_here)
        for note in found.notes:
            log.warning("%s", note)
        return found

    def _load_code(self, gpu: GpuFacts) -> CodeCache:
        """What was compiled for the GPU and all targets, and fits the GPU's shared memory."""
        here, limit = gpu.capability, gpu.shared_memory_bytes
        found = self._read_code()
        fitting = {spec: one for spec, one in found.kernels.items() if one.shared_bytes[here] <= limit}
        return replace(found, kernels=fitting)

    def _read_code(self) -> CodeCache:
        """What the file has for the GPU and all targets; nothing where it is damaged."""
        if self._path is None or not self._has_code:
            return CodeCache()
        path = path_beside(self._path)
        try:
            return load_code(path, self._environment, self._capabilities)
        except DataError as error:
            warn_damaged(path, error.got)
            return CodeCache()


def _both(one: CodeCache, other: CodeCache) -> CodeCache:
    return CodeCache({**one.kernels, **other.kernels}, {**one.plans, **other.plans})
