# SPDX-License-Identifier: Apache-2.0
"""Every flag that trtexec 8.6, 10.16 or 11.1 takes, with the groups of its help text.

From `samples/common/sampleOptions.cpp` of https://github.com/NVIDIA/TensorRT at release/8.6, release/10.16
and main.
"""

from __future__ import annotations

from collections.abc import Mapping

from quantrt.trtexec.flags.build_flags import BUILD_FLAGS, CALIBRATION_FLAGS, MODEL_FLAGS, PRECISION_FLAGS
from quantrt.trtexec.flags.flag import Flag
from quantrt.trtexec.flags.run_flags import INFERENCE_FLAGS, REPORTING_FLAGS, SYSTEM_FLAGS, TUNING_FLAGS

__all__ = ["BY_NAME", "FLAGS", "GROUPS"]

GROUPS: tuple[tuple[str, tuple[Flag, ...]], ...] = (
    ("Model", MODEL_FLAGS),
    ("Precision", PRECISION_FLAGS),
    ("Calibration", CALIBRATION_FLAGS),
    ("Build", BUILD_FLAGS),
    ("Inference", INFERENCE_FLAGS),
    ("Reporting", REPORTING_FLAGS),
    ("System", SYSTEM_FLAGS),
    ("Tuning of build routes", TUNING_FLAGS),
)

FLAGS: tuple[Flag, ...] = tuple(flag for _, group in GROUPS for flag in group)

BY_NAME: Mapping[str, Flag] = {flag.name: flag for flag in FLAGS}
