# SPDX-License-Identifier: Apache-2.0
"""The part of a graph that some tensors need, run as written: every node in floats, nothing fused."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx_ir as ir

from quantrt.errors import DataError, UsageError, close_match
from quantrt.ir.clone import clone
from quantrt.ir.session import ORT_ERRORS, float_session
from quantrt.model.passes.remove_unused import remove_unused

__all__ = ["Part"]


class Part:
    """A session that makes some tensors of a graph and nothing that they do not need.

    Args:
        names: values of the main graph; inputs among them are handed through.
    """

    def __init__(self, graph: ir.Model, names: Sequence[str]) -> None:
        self._names = list(dict.fromkeys(names))
        self._inputs = [value.name or "" for value in graph.graph.inputs]
        self._computed = [name for name in self._names if name not in self._inputs]
        self._session: Any = (
            float_session(_cut(graph, self._computed), optimize=False) if self._computed else None
        )

    def run(self, feed: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """The tensors by name.

        Raises:
            DataError: ONNX Runtime cannot run the model on these inputs.
        """
        given = {name: feed[name] for name in self._inputs if name in feed}
        found = {name: feed[name] for name in self._names if name not in self._computed}
        if self._session is None:
            return found
        try:
            results = self._session.run(self._computed, given)
        except ORT_ERRORS as error:
            raise DataError(
                "ONNX Runtime cannot run the model on these data", got=str(error).strip()
            ) from error
        return {**found, **dict(zip(self._computed, results, strict=True))}


def _cut(graph: ir.Model, names: Sequence[str]) -> ir.Model:
    part = clone(graph)
    values = {value.name: value for node in part.graph for value in node.outputs if value.name}
    for name in names:
        if name not in values:
            near = close_match(name, [str(known) for known in values])
            raise UsageError(f"the model has no tensor '{name}'", hint=f"'{near}'" if near else None)
    part.graph.outputs[:] = [values[name] for name in names]
    remove_unused(part)
    return part
