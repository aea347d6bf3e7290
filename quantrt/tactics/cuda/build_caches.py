# SPDX-License-Identifier: Apache-2.0
"""What a build takes over from earlier ones and leaves for later ones: timings, and machine code beside."""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from dataclasses import replace
from pathlib import Path

import torch

from quantrt.gpu import GpuFacts
from quantrt.tactics.cuda.choices import Choices
from quantrt.tactics.cuda.code_cache import CodeCache, load_code, path_beside, save_code
from quantrt.tactics.cuda.timing_cache import TimingCache, load_timing_cache, save_timing_cache

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
        DataError: a file is damaged; names it.
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
        self.timings = self._load_timings()
        self.code = self._load_code(gpu, targets)
        self._saved_code = self.code

    def add(self, choices: Choices) -> None:
        """Take what tuning timed and compiled."""
        self.timings = choices.cache
        self.code = CodeCache({**self.code.kernels, **choices.kernels}, {**self.code.plans, **choices.plans})

    def save(self) -> None:
        """Write the timings, and the code where there is more of it than was saved last.

        Raises:
            DeviceError: a file cannot be written.
        """
        if self._path is None or not self._is_here:
            return
        save_timing_cache(self.timings, Path(self._path))
        if self._has_code and self.code != self._saved_code:
            save_code(self.code, path_beside(self._path), self._environment)
            self._saved_code = self.code

    def _load_timings(self) -> TimingCache:
        if self._path is None:
            return TimingCache(self._environment)
        found = load_timing_cache(Path(self._path), self._environment, is_elsewhere=not self._is_here)
        for note in found.notes:
            log.warning("%s", note)
        return found

    def _load_code(self, gpu: GpuFacts, targets: Collection[int]) -> CodeCache:
        """What was compiled for the GPU and all targets, and fits the GPU's shared memory."""
        if self._path is None or not self._has_code:
            return CodeCache()
        here, limit = gpu.capability, gpu.shared_memory_bytes
        found = load_code(path_beside(self._path), self._environment, {here, *targets})
        fitting = {spec: one for spec, one in found.kernels.items() if one.shared_bytes[here] <= limit}
        return replace(found, kernels=fitting)
