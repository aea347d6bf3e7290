# SPDX-License-Identifier: Apache-2.0
"""Which part of a model's products each of its nodes does, counted from shapes alone."""

from __future__ import annotations

from quantrt.ir.edit import is_operator
from quantrt.ir.multiply_adds import PRODUCTS, multiply_adds
from quantrt.model.model import Model

__all__ = ["work_shares"]


def work_shares(model: Model) -> dict[str, float]:
    """By node, its multiply-adds over those of the whole model; free sizes, such as the batch, count as 1.

    Nodes that multiply nothing are not in it. Empty where a product's shape is not known.
    """
    counts: dict[str, int] = {}
    for node in model.graph.graph:
        if is_operator(node, *PRODUCTS):
            count = multiply_adds(node)
            if count is None:
                return {}
            counts[node.name or ""] = count
    total = sum(counts.values())
    return {name: count / total for name, count in counts.items()} if total else {}
