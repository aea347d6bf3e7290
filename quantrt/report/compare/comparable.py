# SPDX-License-Identifier: Apache-2.0
"""Whether two models can be compared, and how the second is given the arrays of the first."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from quantrt.calibrate.converted import bound_inputs, given_outputs
from quantrt.errors import UsageError
from quantrt.ir.tensor_spec import Dim
from quantrt.report.subject import Subject

__all__ = ["Run", "check_inputs", "check_types", "run_like"]

Run = Callable[[Mapping[str, np.ndarray]], dict[str, np.ndarray]]
"""One run of a model on arrays by name."""


def check_inputs(reference: Subject, subject: Subject) -> None:
    """Fail where two models take different inputs.

    Raises:
        UsageError: names or sizes differ.
    """
    a, b = ({spec.name for spec in side.inputs} for side in (reference, subject))
    if a != b:
        raise UsageError(
            f"cannot compare '{reference.name}' and '{subject.name}': they take different inputs",
            got=", ".join(map(repr, sorted(b))),
            expected=", ".join(map(repr, sorted(a))),
            hint="`quantrt inspect` of each, for what it takes and gives",
        )
    if reference.plan is not None or subject.plan is not None:
        return  # an engine may have layouts of its own
    given = {spec.name: spec for spec in subject.inputs}
    for spec in reference.inputs:
        if not _may_be_one(spec.shape, given[spec.name].shape):
            raise UsageError(
                f"cannot compare '{reference.name}' and '{subject.name}': their inputs '{spec.name}' differ",
                got=str(given[spec.name]),
                expected=str(spec),
                hint="`quantrt inspect` of each, for what it takes and gives",
            )


def _may_be_one(shape: tuple[Dim, ...] | None, other: tuple[Dim, ...] | None) -> bool:
    """Whether a tensor can have both shapes, whatever the number of samples: the first axis."""
    if shape is None or other is None:
        return True
    sizes = zip(shape[1:], other[1:], strict=False)
    is_same = all(a == b for a, b in sizes if isinstance(a, int) and isinstance(b, int))
    return len(shape) == len(other) and is_same


def check_types(reference: Subject, subject: Subject) -> None:
    """Fail where B cannot be looked into beside A: it takes inputs of another type or layout.

    Raises:
        UsageError: it does.
    """
    own = {spec.name: spec for spec in reference.inputs}
    for spec in subject.inputs if subject.plan is None else subject.plan.inputs:
        if spec.layout or spec.scale is not None or spec.dtype != own[spec.name].dtype:
            raise UsageError(
                f"cannot compare the layers of '{subject.name}': its inputs are not as those of "
                f"'{reference.name}'",
                got=str(spec),
                expected=str(own[spec.name]),
                hint="an engine built without --input-types and --input-layouts, or without --layers",
            )


def run_like(subject: Subject, reference: Subject) -> Run:
    """The run of B on the arrays of A, where B is an engine with types and layouts of its own."""
    plan = subject.plan
    if plan is None or (reference.plan is not None and reference.plan.inputs == plan.inputs):
        return subject.run
    return lambda inputs: given_outputs(subject.run(bound_inputs(inputs, plan.inputs)), plan.outputs)
