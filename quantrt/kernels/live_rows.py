# SPDX-License-Identifier: Apache-2.0
"""Kernels over rows of which only the first ones count, how many being a number in device memory.

Where padding is removed, the tokens of a batch are the first rows of its tensors, and their number is known
on the device alone. A kernel that reads it stores no row behind them, and its programs that have only such
rows end at once. The shapes, and so a CUDA graph, stay those of the whole batch.
"""

from __future__ import annotations

from dataclasses import replace

from quantrt.kernels.kernel import KernelSpec

__all__ = ["ALL_ROWS", "LIVE_ROWS", "with_live_rows"]

LIVE_ROWS = "live_ptr"
"""Name of the argument."""

ALL_ROWS = {LIVE_ROWS: 0, "HAS_LIVE": False}
"""Constants of a kernel that can read the number of its rows, and does not."""


def with_live_rows(spec: KernelSpec) -> KernelSpec | None:
    """The kernel with a last argument, a pointer to the number of rows that count, int32.

    None where it cannot read it.
    """
    constants = dict(spec.constants)
    if any(name not in constants for name in ALL_ROWS):
        return None
    del constants[LIVE_ROWS]
    constants["HAS_LIVE"] = True
    signature = (*spec.signature, (LIVE_ROWS, "*i32"))
    return replace(spec, signature=signature, constants=tuple(constants.items()))
