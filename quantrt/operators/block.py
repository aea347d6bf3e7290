# SPDX-License-Identifier: Apache-2.0
"""A block: the nodes of a graph or subgraph, each bound to the function that computes it, run in order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import onnx_ir as ir
import torch

from quantrt.errors import DeviceError, ModelError
from quantrt.operators.bind import label
from quantrt.operators.element_types import onnx_type, restored, stored, torch_type
from quantrt.operators.operator import Context, Operator, Value
from quantrt.operators.place import Placement

__all__ = ["Block", "Scope", "Step", "describe", "run_block"]

Scope = dict[ir.Value, Value]


@dataclass(frozen=True)
class Step:
    """One node, bound to its function.

    Attributes:
        outputs: None for an output without a name.
        frees: values that no later step of the block reads.
        placement: where its inputs go; None: all are on the device.
    """

    node: ir.Node
    operator: Operator
    attributes: dict[str, Value]
    bodies: dict[str, Block]
    inputs: tuple[ir.Value | None, ...]
    outputs: tuple[ir.Value | None, ...]
    frees: tuple[ir.Value, ...]
    context: Context
    placement: Placement | None


@dataclass(frozen=True)
class Block:
    """A graph or subgraph: steps in order."""

    inputs: tuple[ir.Value, ...]
    outputs: tuple[ir.Value, ...]
    steps: tuple[Step, ...]


class _Body:
    """A subgraph bound to the values around it, as control flow operators call it."""

    def __init__(self, block: Block, scope: Scope, device: torch.device) -> None:
        self._block = block
        self._scope = scope
        self.device = device

    @property
    def output_count(self) -> int:
        return len(self._block.outputs)

    def __call__(self, *inputs: Value) -> tuple[Value, ...]:
        return run_block(self._block, self._scope, inputs, self.device)

    def empty(self, output: int) -> torch.Tensor:
        value = self._block.outputs[output]
        if value.dtype is None or value.shape is None:
            raise ModelError(f"a subgraph ran no time, and its output '{value.name}' has no declared type")
        shape = [n if isinstance(n, int) else 0 for n in value.shape]
        return torch.empty(shape, dtype=torch_type(value.dtype), device=self.device)


def run_block(block: Block, scope: Scope, inputs: Sequence[Value], device: torch.device) -> tuple[Value, ...]:
    """Its outputs; values of `scope` that nothing reads any more are left out of it."""
    if inputs:
        scope.update(zip(block.inputs, inputs, strict=True))
    for step in block.steps:
        results = _run_step(step, scope, device)
        for value, result in zip(step.outputs, results, strict=False):
            if value is not None:
                scope[value] = result
        for value in step.frees:
            del scope[value]
    return tuple(scope[value] for value in block.outputs)


def _run_step(step: Step, scope: Scope, device: torch.device) -> tuple[Value, ...]:
    """The outputs of one node, at least as many as it names."""
    inputs = [None if value is None else scope[value] for value in step.inputs]
    if step.placement is not None:
        inputs = step.placement.place(step.node.op_type, inputs)
    keywords = dict(step.attributes)
    keywords.update({name: _Body(block, scope, device) for name, block in step.bodies.items()})
    if step.operator.takes_context:
        keywords["context"] = step.context
    try:
        result = _call(step.operator, inputs, keywords)
    except torch.OutOfMemoryError as error:
        raise DeviceError(
            f"{device} is out of memory at {label(step.node)}", got=str(error), hint="a smaller --batch"
        ) from error
    except ModelError as error:
        if label(step.node) in error.message:
            raise
        message = f"{label(step.node)}: {error.message}"
        raise ModelError(message, got=error.got, expected=error.expected, hint=error.hint) from error
    except (RuntimeError, ValueError, IndexError, TypeError, NotImplementedError) as error:
        shapes = ", ".join(describe(value) for value in inputs) or "nothing"
        raise ModelError(f"cannot compute {label(step.node)} of {shapes}", got=str(error)) from error
    results = result if isinstance(result, tuple) else (result,)
    wanted = step.context.output_count
    if len(results) < wanted:
        raise ModelError(
            f"{label(step.node)} names more outputs than its operator has",
            got=f"{wanted} outputs",
            expected=f"at most {len(results)}",
        )
    return results


def _call(operator: Operator, inputs: list[Value], keywords: dict[str, Value]) -> Value:
    """The function's result; a mover of elements sees types that torch cannot index as bytes."""
    if not operator.moves:
        return operator.function(*inputs, **keywords)
    seen = [stored(x) if isinstance(x, torch.Tensor) else x for x in inputs]
    odd = [x.dtype for x, y in zip(inputs, seen, strict=True) if y is not None and y.dtype != x.dtype]
    result = operator.function(*seen, **keywords)
    if not odd:
        return result
    if isinstance(result, tuple):
        return tuple(restored(x, odd[0]) for x in result)
    return restored(result, odd[0])


def describe(value: Value) -> str:
    """Type and shape of a value, for errors."""
    if isinstance(value, torch.Tensor):
        return f"{onnx_type(value.dtype).name.lower()} {list(value.shape)}"
    return "nothing" if value is None else f"a sequence of {len(value)}"
