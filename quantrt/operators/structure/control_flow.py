# SPDX-License-Identifier: Apache-2.0
"""If, Loop, Scan and SequenceMap over subgraphs."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import torch

from quantrt.errors import ModelError
from quantrt.operators.operator import Body, Operator, Value

__all__ = ["OPERATORS", "if_", "loop", "scan", "scan_of_batch", "sequence_map"]


def if_(condition: torch.Tensor, *, then_branch: Body, else_branch: Body) -> tuple[Value, ...]:
    """The outputs of one branch."""
    return then_branch() if bool(condition.reshape(()).item()) else else_branch()


def loop(
    trip_count: torch.Tensor | None, condition: torch.Tensor | None, *initial: Value, body: Body
) -> tuple[Value, ...]:
    """body(i, condition, *state) -> (condition, *state, *rows) until the count or the condition ends it.

    Returns:
        The last state, then each row of all iterations stacked on a new first axis.
    """
    limit = None if trip_count is None else int(trip_count.item())
    going = condition is None or bool(condition.item())
    state = tuple(initial)
    rows: list[list[torch.Tensor]] = [[] for _ in range(body.output_count - 1 - len(state))]
    done = 0
    while going and (limit is None or done < limit):
        number = torch.tensor(done, dtype=torch.int64, device=body.device)
        outputs = body(number, torch.tensor(True, device=body.device), *state)
        going = bool(outputs[0].item())
        state = outputs[1 : 1 + len(state)]
        for collected, row in zip(rows, outputs[1 + len(state) :], strict=True):
            collected.append(row)
        done += 1
    first = 1 + len(state)
    return (*state, *(_stack(body, first + n, collected, 0) for n, collected in enumerate(rows)))


def scan(
    *inputs: torch.Tensor,
    body: Body,
    num_scan_inputs: int,
    scan_input_axes: Sequence[int] | None = None,
    scan_input_directions: Sequence[int] | None = None,
    scan_output_axes: Sequence[int] | None = None,
    scan_output_directions: Sequence[int] | None = None,
) -> tuple[Value, ...]:
    """body(*state, *elements) -> (*state, *rows) for each element along the axes of the scan inputs.

    Args:
        num_scan_inputs: the last so many inputs are scanned, the others are the initial state.
        scan_input_directions, scan_output_directions: 1 reads, or writes, back to front.
    """
    state = tuple(inputs[: len(inputs) - num_scan_inputs])
    scanned = list(inputs[len(state) :])
    axes = scan_input_axes or [0] * num_scan_inputs
    sizes = {x.shape[axis] for x, axis in zip(scanned, axes, strict=True)}
    if len(sizes) != 1:
        raise ModelError("the inputs of a Scan differ in length", got=str(sorted(sizes)))
    backward = scan_input_directions or [0] * num_scan_inputs
    rows: list[list[torch.Tensor]] = [[] for _ in range(body.output_count - len(state))]
    (count,) = sizes
    for step in range(count):
        elements = (
            x.select(axis, count - 1 - step if back else step)
            for x, axis, back in zip(scanned, axes, backward, strict=True)
        )
        outputs = body(*state, *elements)
        state = outputs[: len(state)]
        for collected, row in zip(rows, outputs[len(state) :], strict=True):
            collected.append(row)
    out_axes = scan_output_axes or [0] * len(rows)
    out_backward = scan_output_directions or [0] * len(rows)
    stacked = (
        _stack(body, len(state) + n, list(reversed(collected)) if back else collected, axis)
        for n, (collected, axis, back) in enumerate(zip(rows, out_axes, out_backward, strict=True))
    )
    return (*state, *stacked)


def scan_of_batch(
    sequence_lens: torch.Tensor | None,
    *inputs: torch.Tensor,
    body: Body,
    num_scan_inputs: int,
    directions: Sequence[int] | None = None,
) -> tuple[Value, ...]:
    """Opset 8: every input and output has a batch axis first; each sample is scanned on its own."""
    if sequence_lens is not None:
        raise ModelError(
            "Scan of opset 8 is done without sequence_lens", hint="converting to opset 9 or newer"
        )
    run = partial(scan, body=body, num_scan_inputs=num_scan_inputs, scan_input_directions=directions)
    samples = [run(*(x[sample] for x in inputs)) for sample in range(inputs[0].shape[0])]
    return tuple(torch.stack(parts) for parts in zip(*samples, strict=True))


def sequence_map(
    sequence: list[torch.Tensor], *others: torch.Tensor | list[torch.Tensor], body: Body
) -> tuple[Value, ...]:
    """body(element, ...) for each element of the sequences; tensors among the others are given every time.

    Returns:
        One sequence per output of the body.
    """
    lengths = {len(other) for other in (sequence, *others) if isinstance(other, list)}
    if len(lengths) != 1:
        raise ModelError("the sequences of a SequenceMap differ in length", got=str(sorted(lengths)))
    mapped: list[list[torch.Tensor]] = [[] for _ in range(body.output_count)]
    for place, element in enumerate(sequence):
        rest = (other[place] if isinstance(other, list) else other for other in others)
        for collected, result in zip(mapped, body(element, *rest), strict=True):
            collected.append(result)
    return tuple(mapped)


def _stack(body: Body, output: int, rows: list[torch.Tensor], axis: int) -> torch.Tensor:
    """Rows on a new axis; of none, a tensor with a size 0 there, otherwise as the body declares it."""
    if rows:
        return torch.stack(rows, axis)
    declared = body.empty(output)
    return declared.unsqueeze(axis).narrow(axis, 0, 0)


OPERATORS = (
    Operator("If", 1, if_),
    Operator("Loop", 1, loop),
    Operator("Scan", 8, scan_of_batch, until=8),
    Operator("Scan", 9, scan),
    Operator("SequenceMap", 17, sequence_map),
)
