# SPDX-License-Identifier: Apache-2.0
"""The weight of a convolution, [N, C, *kernel], in the layout of each kernel; float32 rounded to float16."""

from __future__ import annotations

import numpy as np

from quantrt.kernels.conv2d.spec import ConvProblem
from quantrt.kernels.fold_pixels.spec import Folding
from quantrt.kernels.gemm_hopper.spec import rows_in_order
from quantrt.kernels.spatial import as_pair
from quantrt.kernels.thin_conv2d.spec import PIXEL, line_width, window_lines
from quantrt.tactics.cuda.forms.rounded import rounded
from quantrt.tactics.cuda.tactic import Constant

__all__ = [
    "channels_after_taps",
    "channels_last",
    "lines_of_windows",
    "rows_of_folded",
    "rows_of_windows",
    "taps_first",
]


def channels_last(name: str, weight: np.ndarray, dtype: str, *, channels: int | None = None) -> Constant:
    """[N, *kernel, C]; of a transposed one [C, *kernel, N]. Codes are numbers of a float type exactly.

    Args:
        channels: how many there are with those of zeros behind; None: as many as the weight has.
    """
    missing = 0 if channels is None else channels - weight.shape[1]

    def make() -> np.ndarray:
        last = np.moveaxis(rounded(weight, dtype), 1, -1)
        filled = np.pad(last, [(0, 0)] * (last.ndim - 1) + [(0, missing)]) if missing else last
        return np.ascontiguousarray(filled, dtype)

    count = "" if channels is None else f"{channels} "
    return Constant(f"{name}:{count}channels last:{dtype}", make)


def rows_of_windows(name: str, weight: np.ndarray, dtype: str, run: int) -> Constant:
    """[rows, *kernel * C] for the kernels of compute capability 9.0; see `rows_in_order`."""

    def make() -> np.ndarray:
        rows = np.moveaxis(rounded(weight, dtype), 1, -1).reshape(len(weight), -1)
        return rows_in_order(rows, run, dtype)

    return Constant(f"{name}:run{run}:{dtype}", make)


def rows_of_folded(name: str, weight: np.ndarray, folding: Folding, run: int) -> Constant:
    """The same of a convolution of folded pixels; see kernels/fold_pixels."""
    dtype = folding.problem.dtype

    def make() -> np.ndarray:
        taps = weight.reshape(*weight.shape[:2], *as_pair(weight.shape[2:], 1))
        return rows_in_order(folding.weight_of(taps).reshape(len(weight), -1), run, dtype)

    return Constant(f"{name}:folded {folding.step}:run{run}:{dtype}", make)


def lines_of_windows(name: str, weight: np.ndarray, problem: ConvProblem) -> Constant:
    """[N, lines, elements of a line] for few channels, zeros where a window ends."""
    width = line_width(problem)
    lines = sum(count for _, count in window_lines(problem))

    def make() -> np.ndarray:
        found = np.zeros((problem.N, lines, width // PIXEL, PIXEL), problem.dtype)
        taps = weight.reshape(problem.N, problem.C, problem.R, problem.S)
        found[:, : problem.R, : problem.S, : problem.C] = np.moveaxis(taps, 1, -1)
        return found.reshape(problem.N, lines, width)

    return Constant(f"{name}:{lines} lines of {width}:{problem.dtype}", make)


def channels_after_taps(name: str, weight: np.ndarray, dtype: str) -> Constant:
    """[N, 1, *kernel] as [*kernel, N]."""
    return Constant(
        f"{name}:channels after taps:{dtype}",
        lambda: np.ascontiguousarray(np.moveaxis(weight[:, 0], 0, -1).astype(dtype)),
    )


def taps_first(name: str, weight: np.ndarray, dtype: str) -> Constant:
    """[C, N, *kernel], that of a transposed convolution, as [*kernel, N, C]."""
    return Constant(
        f"{name}:taps first:{dtype}",
        lambda: np.ascontiguousarray(np.moveaxis(weight, (0, 1), (-1, -2)).astype(dtype)),
    )
