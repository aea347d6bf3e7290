# SPDX-License-Identifier: Apache-2.0
"""Names of tensors that are gone from a graph but had the very values of one that is still there.

The record lives in `Value.meta`: it serves the passes that make a graph canonical, and is not saved.
"""

from __future__ import annotations

import onnx_ir as ir

__all__ = ["add_names", "inherit_names", "names_of"]

KEY = "quantrt.same_values"


def names_of(value: ir.Value) -> tuple[str, ...]:
    """Other names of these values."""
    return tuple(value.meta.get(KEY, ()))


def add_names(value: ir.Value, gone: ir.Value) -> None:
    """Record that `gone`, which leaves the graph, had the values of `value`."""
    names = (*names_of(value), *names_of(gone), *((gone.name,) if gone.name else ()))
    value.meta[KEY] = tuple(dict.fromkeys(names))


def inherit_names(value: ir.Value, gone: ir.Value) -> None:
    """Let `value`, which from now on has the values of `gone`, have its other names in place of its own."""
    value.meta[KEY] = names_of(gone)
