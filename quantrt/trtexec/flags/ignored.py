# SPDX-License-Identifier: Apache-2.0
"""Flags that say how an engine is built, beside an engine that is built already.

trtexec takes --onnx and every build flag together with --loadEngine, loads the engine and leaves them out
without a word (samples/common/sampleEngines.cpp: getEngineBuildEnv). Here each is named.
"""

from __future__ import annotations

from collections.abc import Iterator

from quantrt.trtexec.flags.flag import Effect, Flag
from quantrt.trtexec.flags.flags import GROUPS
from quantrt.trtexec.flags.parse import Given

__all__ = ["flags_of_builds"]

_BUILDS = ("Model", "Precision", "Calibration", "Build")

_MEANT = (
    "--loadEngine",
    "--getPlanVersionOnly",
    "--skipInference",
    "--profilingVerbosity",
    "--optShapes",
    "--profile",
)
"""Of these groups, what means something to a loaded engine: how to tell of it, and shapes to run it at."""

_SHAPE_BOUNDS = ("--minShapes", "--maxShapes")


def flags_of_builds(given: Given, *, has_profiles: bool) -> Iterator[Flag]:
    """The flags of a command line that a loaded engine leaves without effect, each once.

    Args:
        has_profiles: whether the engine has optimization profiles of its own; one without takes those of the
            command line as bounds of the shapes it is run at.
    """
    names = {flag.name for title, flags in GROUPS if title in _BUILDS for flag in flags} - set(_MEANT)
    if not has_profiles:
        names -= set(_SHAPE_BOUNDS)
    return (flag for flag in given.of_effect(Effect.DOES) if flag.name in names)
