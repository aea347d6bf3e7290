# SPDX-License-Identifier: Apache-2.0
"""One thing that a rule found in a model, and how a rule is cited."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

__all__ = ["Finding", "Level", "Rule"]

Level = Literal["error", "advice"]
"""An error keeps a runtime from loading the model; advice is about its speed or its accuracy."""


@dataclass(frozen=True)
class Rule:
    """What a finding is held against.

    Attributes:
        name: as shown in tables, such as "zero-point".
        level: what a violation means.
        fix: what to do about one.
        source: document and section that state it; empty for what follows from what the operators mean.
    """

    name: str
    level: Level
    fix: str
    source: str = ""


@dataclass(frozen=True)
class Finding:
    """A violation.

    Attributes:
        rule: the rule.
        node: name of the node.
        op_type: its operator.
        what: what is so there, in words.
    """

    rule: Rule
    node: str
    op_type: str
    what: str
