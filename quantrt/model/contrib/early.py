# SPDX-License-Identifier: Apache-2.0
"""Operators that ONNX Runtime had before the standard had them, under the same names but for one.

    GridSample, Pad, Range, Trilu      the standard's own, of opset 16 at the latest
    ExpandDims                         Unsqueeze of one axis

onnxruntime.tools.pytorch_export_contrib_ops lets torch export them to opsets that lack them.
Source: onnxruntime, docs/ContribOperators.md.
"""

from __future__ import annotations

import numpy as np

from quantrt.ir.edit import constant_of
from quantrt.model.contrib.writer import NoSpellingError, Writer

__all__ = ["spell_expand_dims", "spell_grid_sample", "spell_pad", "spell_range", "spell_trilu"]


def spell_expand_dims(w: Writer) -> None:
    """Write ExpandDims."""
    axis = constant_of(w.need(1, "axis"))
    if axis is None:
        raise NoSpellingError("its axis is computed")
    w.put({0: w.unsqueezed(w.need(0, "X"), int(axis.reshape(-1)[0]))})


def spell_grid_sample(w: Writer) -> None:
    """Write GridSample."""
    names = ("align_corners", "mode", "padding_mode")
    w.put({0: w.op("GridSample", w.need(0, "X"), w.need(1, "Grid"), **w.copied(*names))})


def spell_pad(w: Writer) -> None:
    """Write Pad, whose pads may be a row of a matrix."""
    pads = constant_of(w.need(1, "pads"))
    if pads is None:
        raise NoSpellingError("its pads are computed")
    value = w.input(2)
    fill = None if value is None else w.op("Reshape", value, w.constant(np.zeros(0, np.int64), "scalar"))
    w.put({0: w.op("Pad", w.need(0, "data"), w.constant(pads.reshape(-1), "pads"), fill, **w.copied("mode"))})


def spell_range(w: Writer) -> None:
    """Write Range; its step is 1 where there is none."""
    start, limit, step = w.need(0, "start"), w.need(1, "limit"), w.input(2)
    ends = [w.op("Reshape", x, w.constant(np.zeros(0, np.int64), "scalar")) for x in (start, limit)]
    if step is None:
        if start.dtype is None:
            raise NoSpellingError("the type of its start is not known")
        one = w.constant(np.asarray(1, start.dtype.numpy()), "step")
    else:
        one = w.op("Reshape", step, w.constant(np.zeros(0, np.int64), "scalar"))
    w.put({0: w.op("Range", *ends, one)})


def spell_trilu(w: Writer) -> None:
    """Write Trilu."""
    w.put({0: w.op("Trilu", w.need(0, "X"), w.input(1), **w.copied("upper"))})
