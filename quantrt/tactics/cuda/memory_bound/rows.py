# SPDX-License-Identifier: Apache-2.0
"""Expressions over elements and rows as one Triton kernel: a few tiles, each with a kernel for any shape."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from quantrt.errors import DataError
from quantrt.gpu import GpuFacts
from quantrt.kernels.codes.spec import why_not_fp8
from quantrt.kernels.kernel import KernelSpec
from quantrt.kernels.rows.spec import RowsProblem, Table, TileConfig, has_rows, kernel_of, why_not
from quantrt.kernels.rows.tiles import configs, variants
from quantrt.kernels.rows.walk import View, Walk, iteration_shape, make_walk, output_order
from quantrt.regions.formula_json import to_json
from quantrt.regions.region import Rows
from quantrt.tactics.cuda.tactic import Constant, Rejected, Tactic, Workload, dense_strides, whole_draft

__all__ = ["list_tactics", "problem_of"]

_SOURCE = "triton"


def list_tactics(workload: Workload, device: GpuFacts, most: int | None = None) -> list[Tactic | Rejected]:
    """At most four tiles, the most promising first; or the reason why there is none.

    Args:
        most: how many are wanted; None: all.
    """
    try:
        problem = problem_of(workload)
    except DataError as error:
        return [Rejected(_SOURCE, "rows", f"{error.message}: {error.got}")]
    if problem is None:
        return [Rejected(_SOURCE, "rows", f"the formula is {type(workload.formula).__name__}, not Rows")]
    reason = why_not_fp8((*problem.memory_types, *problem.outputs), device) or why_not(problem)
    if reason is not None:
        return [Rejected(_SOURCE, "rows", reason)]
    tiles = configs(problem, device)
    other = _in_channels_last(workload, problem)
    carried = {tile: variants(problem, tile, tiles[0], other) for tile in tiles[:most]}
    return [
        _tactic(workload, tile, [kernel_of(problem, variant) for variant in chosen])
        for tile, chosen in carried.items()
    ]


def problem_of(workload: Workload) -> RowsProblem | None:
    """The problem of a workload whose formula is Rows.

    Raises:
        DataError: its operands do not broadcast.
    """
    if not isinstance(workload.formula, Rows):
        return None
    expression = workload.formula.expression
    tensors = iter(workload.inputs)
    indices = frozenset(expression.lookups.values())
    views = []
    for number, operand in enumerate(expression.operands):
        if operand.kind == "tensor":
            facts = next(tensors)
            one = (1,) if number in indices else ()
            views.append(View(facts.shape + one, facts.strides + one))
        elif operand.kind != "scalar":
            shape = workload.constants[operand.name].shape
            shape = shape[1:] if operand.kind == "lookup" else shape
            views.append(View(shape, dense_strides(shape)))
    return RowsProblem(
        expression,
        tuple(facts.dtype for facts in workload.inputs),
        workload.outputs,
        _walk(workload, views, is_by_row=has_rows(expression)),
        {
            number: _table(workload.constants[expression.operands[number].name])
            for number in expression.lookups
        },
    )


def _table(array: np.ndarray) -> Table:
    return Table(str(array.dtype), *array.shape)


def _walk(workload: Workload, views: list[View], *, is_by_row: bool) -> Walk:
    shape = iteration_shape([view.shape for view in views])
    inputs = [View(facts.shape, facts.strides) for facts in workload.inputs]
    full = next((view for view in inputs if view.shape == shape and not is_by_row), None)
    channels_last = isinstance(workload.formula, Rows) and workload.formula.channels_last
    order = output_order(shape, full, channels_last=channels_last)
    return make_walk(shape, views, order=order, has_rows=is_by_row)


def _in_channels_last(workload: Workload, problem: RowsProblem) -> RowsProblem | None:
    """The problem as it is behind a convolution, which stores its channels innermost.

    None where that makes no difference: rows, other ranks, or operands that do so already.
    """
    rank = max((len(facts.shape) for facts in workload.inputs), default=0)
    if problem.has_rows or rank not in (4, 5):
        return None
    moved = [
        replace(x, strides=dense_strides(x.shape, channels_last=True)) if len(x.shape) == rank else x
        for x in workload.inputs
    ]
    other = problem_of(replace(workload, inputs=tuple(moved)))
    return None if other == problem else other


def _tactic(workload: Workload, tile: TileConfig, kernels: Sequence[KernelSpec]) -> Tactic:
    operands = workload.formula.expression.operands if isinstance(workload.formula, Rows) else ()
    constants = dict.fromkeys(x.name for x in operands if x.kind in ("constant", "lookup"))
    draft = whole_draft(
        "rows",
        workload,
        {"formula": to_json(workload.formula)},
        constants=tuple(_constant(name, workload.constants[name]) for name in constants),
        kernels=tuple(dict.fromkeys(kernels)),
    )
    return Tactic(_SOURCE, f"rows {tile.name}", (draft,))


def _constant(name: str, array: np.ndarray) -> Constant:
    return Constant(f"{name}:{array.dtype}", lambda: np.ascontiguousarray(array))
