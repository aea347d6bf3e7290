# SPDX-License-Identifier: Apache-2.0
"""One rule table per target. Calibration knows nothing of them: one set of statistics serves all."""

from __future__ import annotations

from quantrt.errors import UsageError, close_match
from quantrt.quantize.target import Target
from quantrt.quantize.targets.onnxruntime import ORT
from quantrt.quantize.targets.openvino import OPENVINO
from quantrt.quantize.targets.tensorrt import TENSORRT

__all__ = ["TARGETS", "target_named"]

TARGETS: tuple[Target, ...] = (ORT, OPENVINO, TENSORRT)


def target_named(name: str, others: tuple[str, ...] = ()) -> Target:
    """The rule table called `name`.

    Args:
        others: names that a caller knows beside these.

    Raises:
        UsageError: there is none; names the nearest.
    """
    for target in TARGETS:
        if target.name == name:
            return target
    names = [*(target.name for target in TARGETS), *others]
    near = close_match(name, names)
    raise UsageError(
        f"unknown target '{name}'", expected="one of " + ", ".join(names), hint=f"'{near}'" if near else None
    )
