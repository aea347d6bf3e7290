# SPDX-License-Identifier: Apache-2.0
"""One rule table per target. Calibration knows nothing of them: one set of statistics serves all."""

from __future__ import annotations

from quantrt.option_checks import check_choice
from quantrt.quantize.target import Target
from quantrt.quantize.targets.onnxruntime import ORT
from quantrt.quantize.targets.openvino import OPENVINO
from quantrt.quantize.targets.tensorrt import TENSORRT

__all__ = ["TARGETS", "target_named"]

TARGETS: tuple[Target, ...] = (ORT, OPENVINO, TENSORRT)


def target_named(name: str, others: tuple[str, ...] = ()) -> Target:
    """The rule table called `name`.

    Args:
        others: names that a caller has served itself.

    Raises:
        UsageError: there is none; names the nearest.
    """
    by_name = {target.name: target for target in TARGETS}
    check_choice("target", name, (*by_name, *others))
    return by_name[name]
