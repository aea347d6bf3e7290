# SPDX-License-Identifier: Apache-2.0
"""How kernels are chosen on a GPU: the options of this stage.

The others, and how the command line makes options of fields, are in `quantrt.config`.
"""

from __future__ import annotations

from dataclasses import dataclass

from quantrt.errors import UsageError
from quantrt.gpu import TARGETS as GPU_TARGETS
from quantrt.option_checks import check_choice, check_positive
from quantrt.quantize_config import option

__all__ = ["TACTIC_SOURCES", "CudaConfig"]

TACTIC_SOURCES = ("triton", "cublaslt", "cudnn", "torch")
MAX_LEVEL = 5
MB = 1 << 20


@dataclass(frozen=True, kw_only=True)
class CudaConfig:
    """How kernels are chosen on a GPU."""

    builder_optimization_level: int = option(
        3, "0 takes each default without timing, 3 times the likely candidates, 5 all", metavar="0-5"
    )
    tuning_time_s: float | None = option(
        None,
        "for each precision, compile and time kernels for about this long; what is left takes its likely "
        "fastest, untimed, and a later build with the same timing cache goes on there (default: no limit)",
        metavar="S",
    )
    timing_cache: str | None = option(
        None, "read timings of earlier builds from this JSON file, and add to it", metavar="FILE"
    )
    exclude_tactic_sources: tuple[str, ...] = option(
        (), "do not use this source of kernels, repeatable", choices=TACTIC_SOURCES
    )
    workspace_mb: int | None = option(
        None, "reject kernels that need more scratch memory than this (default: no limit)", metavar="MB"
    )
    device_memory_mb: int | None = option(
        None,
        "take no more than this of the GPU's memory in the build: kernels and engines that need more are "
        "rejected (default: no limit)",
        metavar="MB",
    )
    targets: tuple[str, ...] = option(
        (),
        "compile the kernels for these GPUs too, such as sm_80,sm_90; without a GPU here, for these alone",
        metavar="SM",
        has_commas=True,
    )
    gpu: str | None = option(
        None, "plan for this GPU where none is here (default: one of the first target)", metavar="NAME"
    )
    remove_padding: str | None = option(
        None, "compute no tokens for which this mask is 0; their outputs become 0", metavar="INPUT"
    )
    profiles: tuple[str, ...] = option(
        (),
        "accept shapes from MIN to MAX and choose kernels at OPT, as in images=1x3x224x224:8x3x224x224:"
        "32x3x224x224; inputs by commas, repeatable (default: any shape, kernels chosen at the timed one); "
        "on a CPU an engine takes any shape, and is timed at OPT",
        metavar="INPUT=MIN:OPT:MAX",
        flag="--shapes",
    )

    def __post_init__(self) -> None:
        if not 0 <= self.builder_optimization_level <= MAX_LEVEL:
            raise UsageError(
                "cannot use this builder optimization level",
                got=str(self.builder_optimization_level),
                expected=f"0 to {MAX_LEVEL}",
            )
        if self.tuning_time_s is not None and not self.tuning_time_s >= 0.0:
            raise UsageError(
                "cannot use this tuning time", got=f"{self.tuning_time_s} s", expected="0 or more"
            )
        if self.device_memory_mb is not None:
            check_positive("device memory in MB", self.device_memory_mb)
        for source in self.exclude_tactic_sources:
            check_choice("tactic source", source, TACTIC_SOURCES)
        for target in self.targets:
            check_choice("target", target, GPU_TARGETS)

    @property
    def workspace_bytes(self) -> int | None:
        """The bound of a kernel's scratch memory."""
        return None if self.workspace_mb is None else self.workspace_mb * MB
