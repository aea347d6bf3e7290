# SPDX-License-Identifier: Apache-2.0
"""Rules for layers, such as `/stem/*:fp32`: reading them, and which layers they mean."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import onnx_ir as ir

from quantrt.errors import UsageError, close_match
from quantrt.ir.name_pattern import is_meant
from quantrt.ir.sources import sources_of
from quantrt.model.model import Model

__all__ = ["Rule", "check_meaning", "rule_of", "split_rule"]


@dataclass(frozen=True)
class Rule:
    """One rule.

    Attributes:
        types: of each output; one for all.
    """

    pattern: str
    types: tuple[str, ...]

    def type_of(self, number: int) -> str | None:
        """The type of an output, by its number."""
        if len(self.types) == 1:
            return self.types[0]
        return self.types[number] if number < len(self.types) else None

    def means(self, node: ir.Node) -> bool:
        """Whether the rule is for a node, by its name or that of a node of the file that is in it."""
        return any(is_meant(name, self.pattern) for name in (node.name or "", *sources_of(node)))

    @property
    def is_glob(self) -> bool:
        """Whether it may mean more layers than one, some of which it cannot be meant for."""
        return "*" in self.pattern


def split_rule(text: str) -> tuple[str, tuple[str, ...]]:
    """Pattern and words of "PATTERN:WORD+WORD"; the pattern is empty where there is none."""
    pattern, _, words = text.rpartition(":")
    return pattern.strip("'\""), tuple(words.split("+"))


def check_meaning(flag: str, rules: Sequence[Rule], model: Model) -> None:
    """Every rule means some layer.

    Raises:
        UsageError: one means none; with what is called alike.
    """
    nodes = list(model.graph.graph)
    for rule in rules:
        if not any(rule.means(node) for node in nodes):
            known = [name for node in nodes for name in (node.name or "", *sources_of(node))]
            near = close_match(rule.pattern, known)
            raise UsageError(
                f"{flag}: the model has no layer '{rule.pattern}'",
                expected=f"a name or pattern of its {len(nodes)} nodes, such as '{known[0]}'",
                hint=f"'{near}'" if near else "`quantrt inspect MODEL.onnx --layers`",
            )


def rule_of(rules: Sequence[Rule], node: ir.Node) -> tuple[int, Rule] | None:
    """The last rule for a node, and its number."""
    found = [(number, rule) for number, rule in enumerate(rules) if rule.means(node)]
    return found[-1] if found else None
