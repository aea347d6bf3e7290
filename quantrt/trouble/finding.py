# SPDX-License-Identifier: Apache-2.0
"""One thing that will hurt a model in 8 bits or in fp16, with what shows it and what helps."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["HANDLED", "KINDS", "TROUBLE", "Finding"]

TROUBLE = "trouble"
"""A build loses accuracy or time by it, unless something is done."""

HANDLED = "handled"
"""Builds of QuantRT keep clear of it; another tool, or options that overrule them, may not."""

KINDS = (
    "outlier channels",
    "depthwise ranges",
    "channel ranges",
    "wide range",
    "depthwise weights",
    "attention divisor",
    "attention mask",
    "fp16 overflow",
    "codes in, floats out",
    "reformats",
)
"""Every kind there is, in the order in which findings are told."""


@dataclass(frozen=True)
class Finding:
    """What was found.

    Attributes:
        kind: of KINDS.
        level: TROUBLE or HANDLED.
        nodes: that it is about, what matters most first.
        values: tensors that show it.
        figure: the number that shows it, in words.
        effect: what it will do.
        advice: the command or option that helps.
    """

    kind: str
    level: str
    nodes: tuple[str, ...]
    values: tuple[str, ...]
    figure: str
    effect: str
    advice: str
