# SPDX-License-Identifier: Apache-2.0
"""Which activations are held at once: a session per part of the model, its tapped values within a bound."""

from __future__ import annotations

import itertools
import logging
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import onnx_ir as ir

from quantrt.calibrate.records import Arrays
from quantrt.calibrate.tap_sizes import TapSizes
from quantrt.errors import DataError, UsageError, close_match
from quantrt.ir.no_memory import check_memory
from quantrt.ir.session import ORT_ERRORS, float_session
from quantrt.model.cuts import Cut, cut_part, list_cuts
from quantrt.model.model import Model

__all__ = ["Taps", "is_float"]

logger = logging.getLogger(__name__)

_FLOAT_TYPES = (ir.DataType.FLOAT, ir.DataType.FLOAT16, ir.DataType.DOUBLE)
Shapes = tuple[tuple[str, tuple[int, ...]], ...]


@dataclass(frozen=True)
class _Part:
    """Consecutive nodes of a model.

    Attributes:
        inputs: what the session takes.
        outputs: what it returns: `names`, and what other parts read.
        names: the values tapped in it.
        kept: what parts behind it read, its own or from before.
    """

    session: Any
    inputs: frozenset[str]
    outputs: list[str]
    names: list[str]
    kept: tuple[str, ...]


def is_float(value: ir.Value) -> bool:
    """Whether a value is a tensor of floats that can be tapped; a sequence of such tensors is none."""
    return isinstance(value.type, ir.TensorType) and value.dtype in _FLOAT_TYPES


class Taps:
    """Runs a model once and hands out its activations part by part.

    Where the model is cut depends on the shapes of the feed alone, and each way to cut it has its own
    sessions, made when first needed: what is cut and tapped decides what ONNX Runtime fuses, and with that
    the last bits of a value, so it may not depend on what ran before. Every session has a copy of the weights
    of its own part alone.

    Args:
        memory_bytes: of the values tapped in one part, at most, where there are that many places to cut.

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
        self._memory_bytes = memory_bytes
        wanted = dict.fromkeys(names)
        floats = [name for name in wanted if values[name].dtype is None or is_float(values[name])]
        self.names = tuple(floats)
        self.untyped = frozenset(name for name in floats if values[name].dtype is None)
        inputs = {spec.name for spec in model.inputs}
        self._fed = [name for name in floats if name in inputs]
        self._computed = [name for name in floats if name not in inputs]
        self._parts_of: dict[tuple[Cut, ...], list[_Part]] = {}
        self._cuts_of: dict[Shapes, tuple[Cut, ...]] = {}
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
        held: dict[str, Any] = {}
        for part in self._parts(feed):
            try:
                values = part.session.run(part.outputs, _subset({**feed, **held}, part.inputs))
            except ORT_ERRORS as error:
                check_memory(error)
                raise DataError(f"the model fails on {where}", got=str(error).strip()) from error
            held |= dict(zip(part.outputs, values, strict=True))
            del values
            group, held = _subset(held, part.names), _subset(held, part.kept)
            yield group

    def _parts(self, feed: Arrays) -> list[_Part]:
        shapes = tuple((name, array.shape) for name, array in feed.items())
        if shapes not in self._cuts_of:
            self._cuts_of[shapes] = self._cuts(self._sizes.of(feed))
        cuts = self._cuts_of[shapes]
        if cuts not in self._parts_of:
            logger.debug("tapping %d values in %d parts", len(self._computed), len(cuts) + 1)
            self._parts_of[cuts] = self._make_parts(cuts)
        return self._parts_of[cuts]

    def _cuts(self, sizes: Mapping[str, int]) -> tuple[Cut, ...]:
        """Places at which the model is cut: none where all values fit the memory bound together.

        A part holds at most an equal share of all bytes that fits the bound, where there is such a place.
        Shares are powers of two, so that feeds of like shapes are cut alike.

        Args:
            sizes: bytes of every tapped value.
        """
        total_bytes = sum(sizes.values())
        if total_bytes <= self._memory_bytes:
            return ()
        share = total_bytes / 2 ** math.ceil(math.log2(total_bytes / self._memory_bytes))
        graph = self._model.graph.graph
        made = (sum(sizes.get(value.name or "", 0) for value in node.outputs) for node in graph)
        before = list(itertools.accumulate(made, initial=0))  # bytes made before each node
        options, cuts, begin = list_cuts(graph), list[Cut](), 0
        while total_bytes - begin > share:
            later = [cut for cut in options if before[cut.position] > begin]
            if not later:
                break
            near = [cut for cut in later if before[cut.position] - begin <= share] or later[:1]
            half = (begin + before[near[-1].position]) / 2
            # What is not tapped anyway is fused where it is not cut.
            cuts.append(
                min(
                    (cut for cut in near if before[cut.position] >= half),
                    key=lambda cut: (sum(name not in sizes for name in cut.tensors), -cut.position),
                )
            )
            begin = before[cuts[-1].position]
        return tuple(cuts)

    def _make_parts(self, cuts: Sequence[Cut]) -> list[_Part]:
        graph = self._model.graph
        if not cuts:
            session = float_session(graph, extra_outputs=self._computed)
            return [_part(session, self._computed, self._computed, ())]
        places = {value.name: place for place, node in enumerate(graph.graph) for value in node.outputs}
        parts = []
        ends = Cut(len(list(graph.graph)), ())
        for cut, end in itertools.pairwise((Cut(0, ()), *cuts, ends)):
            names = [name for name in self._computed if cut.position <= places[name] < end.position]
            passed = [name for name in end.tensors if places[name] >= cut.position]
            outputs = list(dict.fromkeys((*names, *passed)))
            if outputs:
                session = float_session(cut_part(graph, cut.tensors, outputs))
                parts.append(_part(session, outputs, names, end.tensors))
        return parts


def _part(session: Any, outputs: list[str], names: list[str], kept: tuple[str, ...]) -> _Part:
    inputs = frozenset(value.name for value in session.get_inputs())
    return _Part(session, inputs, outputs, names, kept)


def _subset(values: Mapping[str, Any], names: Iterable[str]) -> dict[str, Any]:
    return {name: values[name] for name in names if name in values}


def _top_level_values(model: Model) -> dict[str, ir.Value]:
    """Inputs and node outputs of the main graph; values inside subgraphs cannot be graph outputs."""
    graph = model.graph.graph
    values = [*graph.inputs, *(value for node in graph for value in node.outputs)]
    return {value.name: value for value in values if value.name}
