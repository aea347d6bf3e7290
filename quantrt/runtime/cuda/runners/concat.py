# SPDX-License-Identifier: Apache-2.0
"""Tensors side by side along one axis: by the kernel of family "concat", or by torch where there is none.

options: {"axis": may be negative, "outputs": [element type]}. The result's axes lie in memory as
`joined_order` says.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from quantrt.errors import DataError
from quantrt.kernels.concat.spec import Run, copied_run, fits, joined_order, run_of, word_bytes_of_kernel
from quantrt.kernels.rows.walk import View
from quantrt.plan.program import Step
from quantrt.runtime.cuda.runner import Allocate, Assets, Launcher, Runner
from quantrt.runtime.cuda.tensors import torch_dtype

__all__ = ["open_runner"]

Tensor = torch.Tensor

_WORDS = {8: torch.int64, 4: torch.int32, 2: torch.int16, 1: torch.int8}
_MAX_ROWS = 2**30
_MAX_GRID_COLUMNS = 65535


def open_runner(step: Step, assets: Assets) -> Runner:
    """The runner of one step."""
    return _ConcatRunner(step, assets)


class _ConcatRunner:
    def __init__(self, step: Step, assets: Assets) -> None:
        self._region = step.region
        self._axis = int(step.options["axis"])
        (dtype,) = step.options["outputs"]
        self._dtype = torch_dtype(dtype)
        self._kernels: list[Launcher] = [assets.kernels[key] for key in step.kernels]

    def run(self, inputs: Sequence[Any], allocate: Allocate) -> Sequence[Any]:
        """See Runner.run."""
        axis = self._check(inputs)
        order = joined_order([_view(x) for x in inputs])
        shape = list(inputs[0].shape)
        shape[axis] = sum(x.shape[axis] for x in inputs)
        inverse = sorted(range(len(order)), key=order.__getitem__)
        result = allocate(0, [shape[i] for i in order], self._dtype).permute(inverse)
        if not result.numel():
            return [result]
        if not self._kernels:
            torch.cat(list(inputs), axis, out=result)
            return [result]
        self._launch([_in_rows(x, order, axis) for x in inputs], result)
        return [result]

    def _check(self, inputs: Sequence[Any]) -> int:
        """The axis, counted from the first.

        Raises:
            DataError: sizes of other axes differ.
        """
        rank: int = inputs[0].dim()
        if not -rank <= self._axis < rank:
            raise self._error(f"inputs of {rank} axes", f"an axis {self._axis}")
        axis = self._axis % rank
        others = {(*x.shape[:axis], *x.shape[axis + 1 :]) for x in inputs}
        if len(others) != 1:
            got = ", ".join(str(list(x.shape)) for x in inputs)
            raise self._error(got, f"equal sizes but along axis {axis}")
        return axis

    def _launch(self, inputs: Sequence[tuple[Tensor, Run]], result: Tensor) -> None:
        tensors, runs = [x for x, _ in inputs], [run for _, run in inputs]
        item_bytes = result.element_size()
        addresses = [x.data_ptr() for x in (result, *tensors)]
        for launcher in self._kernels:
            if fits(launcher.spec, runs, item_bytes, addresses) and runs[0].rows <= _MAX_ROWS:
                word_bytes = word_bytes_of_kernel(launcher.spec)
                words = [run.in_words(item_bytes, word_bytes) for run in runs]
                total = sum(run.columns for run in words)
                whole = _in_words(result, Run(words[0].rows, total, total), word_bytes)
                parts = [_in_words(x, run, word_bytes) for x, run in zip(tensors, words, strict=True)]
                sizes = [*(run.stride for run in words), *(run.columns for run in words)]
                launcher(_grid(launcher, words), [whole, *parts, *sizes, words[0].rows, total])
                return
        raise self._error(", ".join(str(list(x.shape)) for x in tensors), "rows of less than 2**31 elements")

    def _error(self, got: str, expected: str) -> DataError:
        message = f"cannot put the inputs of region '{self._region}' side by side"
        return DataError(message, got=got, expected=expected)


def _grid(launcher: Launcher, words: Sequence[Run]) -> tuple[int, int, int]:
    constants = dict(launcher.spec.constants)
    widest = max(run.columns for run in words)
    columns = min(-(-widest // constants["BLOCK_C"]), _MAX_GRID_COLUMNS)
    return (-(-words[0].rows // constants["BLOCK_R"]), max(1, columns), 1)


def _view(x: Tensor) -> View:
    return View(tuple(x.shape), x.stride())


def _in_rows(x: Tensor, order: Sequence[int], axis: int) -> tuple[Tensor, Run]:
    """The tensor as it is where it lies in rows, else a copy that lies as the result does; and its rows."""
    run = run_of(_view(x), order, axis)
    if run is not None:
        return x, run
    return x.permute(tuple(order)).contiguous(), copied_run(_view(x), order, axis)


def _in_words(x: Tensor, run: Run, word_bytes: int) -> Tensor:
    """A pointer to words: one axis over the first row, in the type that the kernel moves."""
    elements = run.columns * word_bytes // x.element_size()
    return x.as_strided((elements,), (1,)).view(_WORDS[word_bytes])
