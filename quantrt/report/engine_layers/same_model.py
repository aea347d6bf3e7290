# SPDX-License-Identifier: Apache-2.0
"""Whether two engines were made of one model, so that their layers can be held against each other."""

from __future__ import annotations

from quantrt.errors import UsageError
from quantrt.ir.tensor_spec import TensorSpec
from quantrt.plan.plan import Plan

__all__ = ["check_same_model", "model_difference"]


def check_same_model(plan: Plan, name: str, other: Plan, other_name: str) -> None:
    """Fail unless two engines can be held against each other.

    Raises:
        UsageError: they were made of different models; tells in what these differ.
    """
    difference = model_difference(plan, other)
    if difference is not None:
        raise UsageError(
            f"cannot hold '{name}' against '{other_name}': they are engines of different models",
            got=difference,
            hint="`quantrt inspect` of each, for what it takes and gives",
        )


def model_difference(plan: Plan, other: Plan) -> str | None:
    """In what the models of two engines differ; None for one graph, and for forms of one.

    A model with QuantizeLinear nodes in it, say, is another graph than without, with the same inputs, outputs
    and nodes beside them.
    """
    if plan.fingerprint.graph == other.fingerprint.graph:
        return None
    for what, left, right in (
        ("inputs", plan.inputs, other.inputs),
        ("outputs", plan.outputs, other.outputs),
    ):
        if len(left) != len(right) or not all(map(_is_alike, left, right)):
            return f"{what} {_text(left)} and {_text(right)}"
    if not _nodes(plan) & _nodes(other):
        return "graphs that have no node of one name"
    return None


def _is_alike(left: TensorSpec, right: TensorSpec) -> bool:
    """Whether two tensors may be the same one; a free size may be any."""
    if (left.name, left.dtype) != (right.name, right.dtype):
        return False
    if left.shape is None or right.shape is None:
        return True
    return len(left.shape) == len(right.shape) and all(
        not (isinstance(a, int) and isinstance(b, int)) or a == b
        for a, b in zip(left.shape, right.shape, strict=True)
    )


def _text(specs: tuple[TensorSpec, ...]) -> str:
    return ", ".join(map(str, specs)) or "none"


def _nodes(plan: Plan) -> set[str]:
    return {name for layer in plan.layers for name in (layer.name, *layer.sources)}
