# SPDX-License-Identifier: Apache-2.0
"""Expressions over elements and rows, by the kernel of family "rows".

options: {"formula": JSON of the formula, "outputs": [element types]}; weights: the expression's constants and
tables in operand order, each once. The axes of the outputs lie in memory in the order of the first input of
full shape; those of an expression over rows are contiguous.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from quantrt.errors import DataError, InternalError
from quantrt.kernels.rows.spec import ALIGNMENT, MAX_INT32, TILES, Table, arguments_of, fits, has_rows
from quantrt.kernels.rows.walk import View, Walk, iteration_shape, make_walk, output_order
from quantrt.plan.program import Step
from quantrt.regions.formula_json import from_json
from quantrt.regions.region import Rows
from quantrt.runtime.cuda.runner import Allocate, Assets, Launcher, Runner
from quantrt.runtime.cuda.tensors import torch_dtype

__all__ = ["open_runner"]

_TYPES = {
    "*i8": torch.int8,
    "*fp8e4nv": torch.float8_e4m3fn,
    "*u8": torch.uint8,
    "*i16": torch.int16,
    "*i32": torch.int32,
    "*i64": torch.int64,
    "*fp16": torch.float16,
    "*bf16": torch.bfloat16,
    "*fp32": torch.float32,
    "*fp64": torch.float64,
}

MAX_ROWS = 2**30


def open_runner(step: Step, assets: Assets) -> Runner:
    """The runner of one step.

    Raises:
        InternalError: the step has another formula, or no kernels.
    """
    return _RowsRunner(step, assets)


class _RowsRunner:
    def __init__(self, step: Step, assets: Assets) -> None:
        formula = from_json(step.options["formula"])
        if not isinstance(formula, Rows) or not step.kernels:
            raise InternalError(f"region '{step.region}' is no expression with kernels")
        self._region = step.region
        self._device = assets.device
        self._expression = formula.expression
        self._channels_last = formula.channels_last
        self._has_rows = has_rows(formula.expression)
        self._outputs = tuple(torch_dtype(name) for name in step.options["outputs"])
        self._kernels = [
            (assets.kernels[key], dict(assets.kernels[key].spec.constants)) for key in step.kernels
        ]
        types = dict(self._kernels[0][0].spec.signature)
        operands = formula.expression.operands
        self._types = [_TYPES[types[f"x{i}"]] for i, x in enumerate(operands) if x.kind != "scalar"]
        names = list(dict.fromkeys(x.name for x in operands if x.kind in ("constant", "lookup")))
        weights = dict(zip(names, (assets.weights[key] for key in step.weights), strict=True))
        lookups = formula.expression.lookups
        self._indices = frozenset(lookups.values())
        self._tables = {i: Table("", *weights[operands[i].name].shape) for i in lookups}
        # Of a table its first row: the kernel finds the others from there.
        sources = {i: weights[operands[i].name][0] for i in lookups}
        sources |= {i: weights[x.name] for i, x in enumerate(operands) if x.kind == "constant"}
        self._sources = [sources.get(i) for i in range(len(operands))]
        self._is_table = [i in lookups for i, x in enumerate(operands) if x.kind != "scalar"]
        self._kinds = [x.kind for x in operands]

    def run(self, inputs: Sequence[Any], allocate: Allocate) -> Sequence[Any]:
        """See Runner.run."""
        tensors = self._operands(inputs)
        try:
            shape = iteration_shape([tuple(tensor.shape) for tensor in tensors])
        except DataError as error:
            raise DataError(f"cannot compute region '{self._region}'", got=error.got) from error
        full = next((x for x in inputs if tuple(x.shape) == shape and not self._has_rows), None)
        order = output_order(shape, None if full is None else _view(full), channels_last=self._channels_last)
        outputs = self._allocate(shape, allocate, order)
        if all(output.numel() == 0 for output in outputs):
            return outputs
        self._launch(shape, tensors, outputs, order)
        return outputs

    def _operands(self, inputs: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """Tensors of all operands that are no scalars, on the device, in the types of the kernels."""
        given = iter(inputs)
        used = [
            source if source is not None else _along_rows(next(given), is_index=i in self._indices)
            for i, (kind, source) in enumerate(zip(self._kinds, self._sources, strict=True))
            if kind != "scalar"
        ]
        return [
            _as_bytes(tensor).to(self._device, dtype) for tensor, dtype in zip(used, self._types, strict=True)
        ]

    def _allocate(
        self, shape: tuple[int, ...], allocate: Allocate, order: Sequence[int]
    ) -> list[torch.Tensor]:
        outputs = []
        for number, (dtype, is_row) in enumerate(
            zip(self._outputs, self._expression.row_outputs, strict=True)
        ):
            own = (*shape[:-1], 1) if is_row else shape
            memory = allocate(number, [own[axis] for axis in order], dtype)
            outputs.append(memory.permute(_inverse(order)))
        return outputs

    def _launch(
        self,
        shape: tuple[int, ...],
        tensors: list[torch.Tensor],
        outputs: list[torch.Tensor],
        order: Sequence[int],
    ) -> None:
        for operands in (tensors, None):
            if operands is None:
                # Too many dimensions for any kernel: copies that lie as the outputs do have few.
                operands = [
                    tensor if is_table else _spread(tensor, shape, order)
                    for tensor, is_table in zip(tensors, self._is_table, strict=True)
                ]
            walk = make_walk(
                shape,
                [_view(tensor) for tensor in operands],
                order=order,
                has_rows=self._has_rows,
            )
            pointers = self._pointers(operands, outputs)
            for launcher, constants in self._kernels:
                arguments = self._arguments(launcher, constants, walk, pointers)
                if arguments is not None:
                    launcher(_grid(constants, walk), arguments)
                    return
        raise DataError(
            f"no kernel of region '{self._region}' takes its inputs",
            got=", ".join(str(list(tensor.shape)) for tensor in tensors),
            expected=f"at most {MAX_ROWS} rows, and strides below 2**31",
        )

    def _pointers(
        self, operands: Sequence[torch.Tensor], outputs: Sequence[torch.Tensor]
    ) -> dict[str, torch.Tensor | float]:
        """What the kernel's arguments x0, x1, ... and y0, ... are."""
        tensors = iter(operands)
        values: dict[str, torch.Tensor | float] = {
            f"x{i}": operand.value if operand.kind == "scalar" else next(tensors)
            for i, operand in enumerate(self._expression.operands)
        }
        return values | {f"y{i}": _as_bytes(output) for i, output in enumerate(outputs)}

    def _arguments(
        self,
        launcher: Launcher,
        constants: dict[str, Any],
        walk: Walk,
        pointers: dict[str, torch.Tensor | float],
    ) -> list[Any] | None:
        """The launch's arguments; None when the kernel is not right for them."""
        if not fits(constants, walk) or walk.rows > MAX_ROWS:
            return None
        values = pointers | arguments_of(self._expression, walk, constants["OUTER"], self._tables)
        for name, kind in launcher.spec.signature:
            value = values[name]
            if kind == "i32" and isinstance(value, int) and value > MAX_INT32:
                return None
            if name in launcher.spec.aligned:
                place = value.data_ptr() if isinstance(value, torch.Tensor) else int(value)
                if place % ALIGNMENT:
                    return None
        return [values[name] for name, _ in launcher.spec.signature]


def _grid(constants: dict[str, Any], walk: Walk) -> tuple[int, int, int]:
    programs = -(-walk.rows // constants["BLOCK_R"])
    if constants["MODE"] == TILES:
        programs *= -(-walk.columns // constants["BLOCK_C"])
    return (min(programs, constants["PROGRAMS"] or programs), 1, 1)


def _along_rows(tensor: torch.Tensor, *, is_index: bool) -> torch.Tensor:
    """The operand with the axes of the result, one number for a whole row of a table."""
    return tensor.unsqueeze(-1) if is_index else tensor


def _view(tensor: torch.Tensor) -> View:
    return View(tuple(tensor.shape), tensor.stride())


def _as_bytes(tensor: torch.Tensor) -> torch.Tensor:
    """Truth as bytes of 0 and 1; anything else as it is."""
    return tensor.view(torch.uint8) if tensor.dtype == torch.bool else tensor


def _spread(tensor: torch.Tensor, shape: tuple[int, ...], order: Sequence[int]) -> torch.Tensor:
    """A copy that is broadcast to `shape`, its axes in memory as those of the outputs."""
    if tensor.numel() == 1:
        return tensor.reshape(())
    copy = torch.empty([shape[axis] for axis in order], dtype=tensor.dtype, device=tensor.device)
    return copy.permute(_inverse(order)).copy_(tensor.expand(shape))


def _inverse(order: Sequence[int]) -> list[int]:
    """The permutation that undoes `order`."""
    return sorted(range(len(order)), key=order.__getitem__)
