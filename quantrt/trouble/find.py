# SPDX-License-Identifier: Apache-2.0
"""Everything that is looked for, in the order in which it is told."""

from __future__ import annotations

from quantrt.trouble.boundaries import find_float_outputs, find_reformats
from quantrt.trouble.channels import find_lost_inputs, find_lost_weights, find_wide_ranges
from quantrt.trouble.divisor import find_divisors
from quantrt.trouble.finding import TROUBLE, Finding
from quantrt.trouble.float16 import find_overflows
from quantrt.trouble.masks import find_masks
from quantrt.trouble.scene import Scene

__all__ = ["PREDICTORS", "find_trouble"]

PREDICTORS = (
    find_lost_inputs,
    find_wide_ranges,
    find_lost_weights,
    find_divisors,
    find_masks,
    find_overflows,
    find_float_outputs,
    find_reformats,
)


def find_trouble(scene: Scene) -> tuple[Finding, ...]:
    """What builds lose by first, then what they keep clear of."""
    found = [finding for predictor in PREDICTORS for finding in predictor(scene)]
    return tuple(sorted(found, key=lambda finding: finding.level != TROUBLE))
