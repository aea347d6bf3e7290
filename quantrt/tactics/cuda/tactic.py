# SPDX-License-Identifier: Apache-2.0
"""A region in one precision (Workload), and the ways to compute it (Tactic)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cached_property
from operator import attrgetter
from typing import Any

import numpy as np

from quantrt.kernels.kernel import KernelSpec
from quantrt.plan.cudnn_plan import CudnnGraph
from quantrt.plan.grouped_weight import GroupedWeight, as_groups
from quantrt.regions.region import Formula, Gemm
from quantrt.threads import usable_cores

__all__ = [
    "CODED",
    "DEQUANTIZED",
    "LIVE",
    "REFERENCE",
    "Constant",
    "Draft",
    "Rejected",
    "Tactic",
    "TensorFacts",
    "Workload",
    "dense_strides",
    "see_weights",
    "whole_draft",
]

CODED = "coded"
"""A word in the name of a tactic that makes codes of the floats that it multiplies."""

DEQUANTIZED = "dequantized"
"""A word in the name of a tactic that computes an int8 workload in floats."""

REFERENCE = "reference"
"""Name of the tactic that all others are held against."""

LIVE = "live"
"""What a draft calls the number of its rows that count."""


@dataclass(frozen=True)
class TensorFacts:
    """A tensor as a tactic sees it.

    Attributes:
        dtype: numpy's name.
        shape, strides: concrete, in elements, at the shapes that are timed.
    """

    dtype: str
    shape: tuple[int, ...]
    strides: tuple[int, ...]


def dense_strides(shape: Sequence[int], *, channels_last: bool = False) -> tuple[int, ...]:
    """Strides without gaps: row by row, or with axis 1 innermost as convolutions keep theirs."""
    order = list(range(len(shape)))
    if channels_last and len(shape) > 2:
        order = [0, *order[2:], 1]
    strides = [0] * len(shape)
    step = 1
    for axis in reversed(order):
        strides[axis] = step
        step *= max(shape[axis], 1)
    return tuple(strides)


@dataclass(frozen=True)
class Constant:
    """A weight in the layout that a tactic wants, made when it is needed.

    Attributes:
        key: names the source and every change made to it, so that equal keys mean equal arrays.
    """

    key: str
    make: Callable[[], np.ndarray] = field(compare=False)


@dataclass(frozen=True)
class Workload:
    """One region with its numbers: everything that decides which tactics are legal and how fast they are.

    The formula's expression is lowered: an operand that arrives as int8 codes is multiplied by its scale (a
    scalar operand, or for the accumulator of an int8 product a constant of N elements), an output that leaves
    as codes ends in `quantize`.

    Attributes:
        region: its name.
        inputs: facts of what the formula reads, in its order: x, then every tensor operand; q, k, v and
            the mask for attention. A value that is read twice is there twice.
        outputs: element type of each stored output.
        weight: the product's weight as it is multiplied: int8 codes, or the model's floats; None without one.
        constants: float32 arrays of the expression's constant operands, by name.
        pitches: elements from one pixel to the next of every output that is a slice of a larger image, 0 of
            others; empty where none is.
        live_rows: so many of the rows, the first ones, count at the shapes that are timed: the tokens that
            are no padding. None where all do.
    """

    region: str
    formula: Formula
    inputs: tuple[TensorFacts, ...]
    outputs: tuple[str, ...]
    weight: np.ndarray | None = field(default=None, compare=False)
    constants: Mapping[str, np.ndarray] = field(default_factory=dict, compare=False)
    pitches: tuple[int, ...] = ()
    live_rows: int | None = None

    @cached_property
    def groups(self) -> GroupedWeight | None:
        """The weight of a product of halves as codes of 4 bits in groups of inputs, where it is just that."""
        formula, weight = self.formula, self.weight
        if not isinstance(formula, Gemm) or weight is None or self.inputs[0].dtype != "float16":
            return None
        return as_groups(weight, axis=int(formula.is_transposed))

    @cached_property
    def largest_weight(self) -> float:
        """The greatest magnitude in the weight; 0 without one."""
        weight = self.weight
        return 0.0 if weight is None else max(float(weight.max()), -float(weight.min()))

    def structure(self) -> list[Any]:
        """All but names and numbers that do not change the work, JSON-ready: what is equal takes as long."""
        weight = None if self.weight is None else (str(self.weight.dtype), self.weight.shape)
        constants = [(str(array.dtype), array.shape) for array in self.constants.values()]
        found = [_nameless(self.formula), _plain(self.inputs), list(self.outputs), weight, constants]
        found += [list(self.pitches)] if self.pitches else []
        found += [] if self.live_rows is None else [{"live_rows": self.live_rows}]
        groups = self.groups
        return found if groups is None else [*found, groups.group_size, groups.zero_point is not None]


def see_weights(workloads: Sequence[Workload]) -> None:
    """Find the largest of every weight that will be multiplied in halves, on all cores; it is kept."""
    products = [work for work in workloads if isinstance(work.formula, Gemm) and work.weight is not None]
    halves = [work for work in products if work.inputs[0].dtype == "float16"]
    with ThreadPoolExecutor(usable_cores()) as pool:  # numpy computes without Python's lock
        list(pool.map(attrgetter("largest_weight"), halves))


@dataclass(frozen=True)
class Draft:
    """A step before its weights and kernels are made.

    Attributes:
        inputs, outputs: "in0", "in1", ... and "out0", "out1", ... for the region's own inputs and outputs by
            position, LIVE for the number of its rows that count; any other name is a buffer between the
            drafts of one tactic.
        constants: the step's weights, in the runner's order.
        kernels: what it may launch, best first.
        graphs: what cuDNN compiles for it, on the GPU that it is for.
    """

    runner: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    options: Mapping[str, Any] = field(default_factory=dict)
    constants: tuple[Constant, ...] = ()
    kernels: tuple[KernelSpec, ...] = ()
    graphs: tuple[CudnnGraph, ...] = ()


def whole_draft(
    runner: str,
    workload: Workload,
    options: Mapping[str, Any],
    constants: tuple[Constant, ...] = (),
    kernels: tuple[KernelSpec, ...] = (),
) -> Draft:
    """A step that computes a whole region: reads all inputs, stores all outputs, is told their types."""
    inputs = tuple(f"in{number}" for number in range(len(workload.inputs)))
    outputs = tuple(f"out{number}" for number in range(len(workload.outputs)))
    return Draft(runner, inputs, outputs, {**options, "outputs": list(workload.outputs)}, constants, kernels)


@dataclass(frozen=True)
class Tactic:
    """One way to compute a workload.

    Attributes:
        source: "triton", "cublaslt", "cudnn" or "torch".
        name: unique among the tactics of a workload, such as "gemm 128x128x64 w8 s3".
        drafts: run in order.
        workspace_bytes: device memory beyond inputs and outputs.
        handicap: its time counts so many times where the fastest is chosen: of what costs something besides.
    """

    source: str
    name: str
    drafts: tuple[Draft, ...]
    workspace_bytes: int = 0
    handicap: float = 1.0


@dataclass(frozen=True)
class Rejected:
    """A tactic that cannot be used, and why."""

    source: str
    name: str
    reason: str


def _plain(value: Any) -> Any:
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    if hasattr(value, "__dataclass_fields__"):
        return {name: _plain(getattr(value, name)) for name in value.__dataclass_fields__}
    return value


def _nameless(formula: Any) -> Any:
    """The formula's structure: names, edges and the values of scalars left out."""
    dropped = {"name", "use", "x", "w", "weight", "edges", "mask_constant"}
    if isinstance(formula, tuple):
        return [_nameless(item) for item in formula]
    if not hasattr(formula, "__dataclass_fields__"):
        return formula
    is_scalar = getattr(formula, "kind", "") == "scalar"
    names = [n for n in formula.__dataclass_fields__ if n not in dropped and not (is_scalar and n == "value")]
    return {"type": type(formula).__name__, **{name: _nameless(getattr(formula, name)) for name in names}}
