# SPDX-License-Identifier: Apache-2.0
"""Which activations are held at once: sessions that return the tapped values in bounded groups."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from typing import Any

import onnx_ir as ir

from quantrt.calibrate.records import Arrays
from quantrt.calibrate.tap_sizes import TapSizes
from quantrt.errors import DataError, UsageError, close_match
from quantrt.ir.session import ORT_ERRORS, float_session
from quantrt.model.model import Model

__all__ = ["Taps"]

logger = logging.getLogger(__name__)

FLOAT_TYPES = (ir.DataType.FLOAT, ir.DataType.FLOAT16, ir.DataType.DOUBLE)
Shapes = tuple[tuple[str, tuple[int, ...]], ...]


class Taps:
    """Runs a model and hands out its activations group by group.

    The number of groups depends on the shapes of the feed alone. It is a power of two, and each number has
    its own sessions, made when first needed: which values are tapped together decides what ONNX Runtime
    fuses, and with that the last bits of a value, so it may not depend on what ran before.

    Args:
        memory_bytes: of the values of one group, at most; as many as the weights take where these are more,
            for each session has a copy of them, and smaller groups would take more memory in all.

    Attributes:
        names: the values tapped, in the order asked for.
        untyped: those whose element type is not known before running: they may turn out to be no floats.
    """

    def __init__(self, model: Model, names: Sequence[str], memory_bytes: int) -> None:
        values = _top_level_values(model)
        for name in names:
            if name not in values:
                near = close_match(name, values)
                raise UsageError(f"the model has no tensor '{name}'", hint=f"'{near}'" if near else None)
        self._model = model
        constants = (value.const_value for value in model.graph.graph.initializers.values())
        weight_bytes = sum(tensor.nbytes for tensor in constants if tensor is not None)
        self._memory_bytes = max(memory_bytes, weight_bytes)
        floats = [name for name in dict.fromkeys(names) if values[name].dtype in (*FLOAT_TYPES, None)]
        self.names = tuple(floats)
        self.untyped = frozenset(name for name in floats if values[name].dtype is None)
        inputs = {spec.name for spec in model.inputs}
        self._fed = [name for name in floats if name in inputs]
        self._computed = [name for name in floats if name not in inputs]
        self._sessions: dict[int, list[tuple[list[str], Any]]] = {}
        self._group_counts: dict[Shapes, int] = {}
        self._sizes = TapSizes(model.graph, self._computed)

    def run(self, feed: Arrays, where: str) -> Iterator[dict[str, Any]]:
        """The tapped values of one feed, in groups; drop each before asking for the next.

        A value is an array, or whatever else an untyped one turns out to be.

        Raises:
            DataError: ONNX Runtime cannot run the model on it.
        """
        if self._fed:
            yield {name: feed[name] for name in self._fed}
        if not self._computed:
            return
        for names, session in self._groups(feed):
            try:
                values = session.run(names, dict(feed))
            except ORT_ERRORS as error:
                raise DataError(f"the model fails on {where}", got=str(error).strip()) from error
            yield dict(zip(names, values, strict=True))
            del values

    def _groups(self, feed: Arrays) -> list[tuple[list[str], Any]]:
        shapes = tuple((name, array.shape) for name, array in feed.items())
        if shapes not in self._group_counts:
            self._group_counts[shapes] = self._group_count(feed)
        count = self._group_counts[shapes]
        if count not in self._sessions:
            # Every count-th name: neighbours in a network are of similar size, so groups come out even.
            groups = [self._computed[start::count] for start in range(count)]
            logger.debug("tapping %d values in %d groups", len(self._computed), count)
            self._sessions[count] = [
                (names, float_session(self._model.graph, extra_outputs=names)) for names in groups
            ]
        return self._sessions[count]

    def _group_count(self, feed: Arrays) -> int:
        """The least power of two whose groups fit the memory bound, at most one group per value."""
        sizes = self._sizes.of(feed)
        count = 1
        while count < len(self._computed):
            groups = (self._computed[start::count] for start in range(count))
            if max(sum(sizes[name] for name in names) for names in groups) <= self._memory_bytes:
                break
            count *= 2
        return min(count, len(self._computed))


def _top_level_values(model: Model) -> dict[str, ir.Value]:
    """Inputs and node outputs of the main graph; values inside subgraphs cannot be graph outputs."""
    graph = model.graph.graph
    values = [*graph.inputs, *(value for node in graph for value in node.outputs)]
    return {value.name: value for value in values if value.name}
