# SPDX-License-Identifier: Apache-2.0
"""Take the padding out of a program, as the mask says at every run.

Around the part that can be computed in any order of tokens (token_axes.py) rows are put in order, and back
into their places behind it, with zeros where the mask keeps nothing. Inside, products and expressions over
rows stop behind the last token, and attention reads from which row to which each sample goes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import onnx_ir as ir

from quantrt.errors import ModelError
from quantrt.kernels.rows.spec import has_rows
from quantrt.plan.program import Step
from quantrt.regions.facts.sizes import Sizes
from quantrt.regions.region import Attention, Gemm, Rows
from quantrt.tactics.cuda.forms.forms import CODES, FLOAT, Forms
from quantrt.tactics.cuda.padding.token_axes import TokenAxes, find_token_axes
from quantrt.tactics.cuda.program.assemble import Item
from quantrt.tactics.cuda.program.frame import Frame

__all__ = ["remove_padding", "told_padding"]

ORDER, PLACES, OFFSETS, LIVE = "token order", "token places", "token offsets", "token count"
"""Buffers: which token each row holds; in which row each token is; the row where each sample begins, and the
end of the last; how many tokens there are. Names with a space are no values of a graph."""


def remove_padding(
    frame: Frame, graph: ir.Model, forms: Forms, mask: str, reasons: Mapping[str, str | None]
) -> Frame:
    """The program with tokens in the order of the mask, where that is possible.

    Args:
        mask: an input of the model, [B, S]; what is not 0 is a token.
        reasons: for every attention, why its mask is not this one, or why it is not known as one; None where
            the mask is this one.

    Raises:
        ModelError: none of its attention can do without the padding.
    """
    good = {region for region, reason in reasons.items() if reason is None}
    found = find_token_axes(frame, graph.graph, Sizes(graph), mask, good)
    kept = {frame.items[number].region for number in found.items} & good
    if not kept:
        told = next((f"'{region}': {why}" for region, why in reasons.items() if why), "there is none")
        raise ModelError(
            f"the padding that '{mask}' tells of cannot be removed: no attention is computed token by token",
            got=told if not good else "its q, k and v do not come from products of one token each",
            expected=f"softmax(q k^T + mask) v with a mask made of '{mask}' alone, the same for all queries",
            hint="without --remove-padding",
        )
    items = tuple(_needed(_Rewriter(frame, forms, mask, found).items(), frame))
    program = replace(frame.program, outputs=tuple(_outputs(frame, found)))
    return replace(frame, program=program, items=items)


def told_padding(frame: Frame, mask: str | None) -> list[str]:
    """Where padding was removed, for the report."""
    formulas = [item.lowered.formula for item in frame.items if item.live and item.lowered is not None]
    attention = sum(isinstance(formula, Attention) for formula in formulas)
    told = f"padding is removed by '{mask}': {attention} attentions and {len(formulas) - attention} regions"
    return [] if mask is None else [f"{told} beside them; outputs are 0 at padding"]


def _outputs(frame: Frame, found: TokenAxes) -> Iterator[tuple[str, str, str]]:
    made = _made(frame.items, found)
    for name, buffer, dtype in frame.program.outputs:
        yield name, _padded(buffer) if buffer in made else buffer, dtype


def _made(items: Sequence[Item], found: TokenAxes) -> set[str]:
    return {buffer for number in found.items for buffer in items[number].outputs}


def _packed(buffer: str) -> str:
    return f"packed {buffer}"


def _padded(buffer: str) -> str:
    return f"padded {buffer}"


@dataclass
class _Rewriter:
    """Items in their new form, in order.

    Attributes:
        there: buffers that were made for others, in the order of tokens or back in their places.
    """

    frame: Frame
    forms: Forms
    mask: str
    found: TokenAxes
    there: set[str] = field(default_factory=set)

    def items(self) -> Iterator[Item]:
        """All of them, and conversions of what is read on the other side."""
        made = _made(self.frame.items, self.found)
        yield self._index()
        for number, item in enumerate(self.frame.items):
            if number in self.found.items:
                places = self.found.reads[number]
                entering = [item.inputs[place] for place in places if item.inputs[place] not in made]
                yield from (self._pack(buffer) for buffer in entering if self._is_new(_packed(buffer)))
                inputs = [
                    _packed(buffer) if place in places and buffer not in made else buffer
                    for place, buffer in enumerate(item.inputs)
                ]
                yield _in_order(item, inputs)
            elif item.step is not None and item.step.is_host:
                yield item  # reads sizes alone, which are the same
            else:
                leaving = [buffer for buffer in item.inputs if buffer in made]
                yield from self._back(leaving)
                yield _reading(item, [_padded(x) if x in made else x for x in item.inputs])
        yield from self._back([buffer for _, buffer, _ in self.frame.program.outputs if buffer in made])

    def _back(self, buffers: Sequence[str]) -> Iterator[Item]:
        return (self._unpack(buffer) for buffer in buffers if self._is_new(_padded(buffer)))

    def _is_new(self, buffer: str) -> bool:
        is_new = buffer not in self.there
        self.there.add(buffer)
        return is_new

    def _index(self) -> Item:
        return _item("token_index", "tokens", (self.mask,), (ORDER, PLACES, OFFSETS, LIVE), {})

    def _pack(self, buffer: str) -> Item:
        return _item("pack_tokens", _packed(buffer), (buffer, ORDER), (_packed(buffer),), {})

    def _unpack(self, buffer: str) -> Item:
        options = {"axis": self.found.axes[buffer], "zero": self._zeros.get(buffer, 0)}
        inputs = (buffer, PLACES, LIVE)
        return _item("unpack_tokens", _padded(buffer), inputs, (_padded(buffer),), options)

    @property
    def _zeros(self) -> dict[str, int]:
        """The code of 0 of buffers of codes."""
        pairs = (
            (item.outputs[place], self.forms.zero_points.get(value, 0))
            for item in self.frame.items
            if item.lowered is not None
            for place, (value, form) in enumerate(item.lowered.outputs)
            if form == CODES
        )
        return dict(pairs)


def _item(
    runner: str, name: str, inputs: tuple[str, ...], outputs: tuple[str, ...], options: Mapping[str, int]
) -> Item:
    return Item(name, inputs, outputs, step=Step(runner, name, inputs, outputs, options))


def _in_order(item: Item, inputs: Sequence[str]) -> Item:
    """The item over tokens in the new order."""
    lowered = item.lowered
    if lowered is None:
        return _reading(item, inputs)
    if isinstance(lowered.formula, Attention):
        formula = replace(lowered.formula, is_packed=True, has_mask=False, mask_kind="added")
        slots = (*lowered.inputs[:3], (OFFSETS, FLOAT))
        return replace(
            item,
            inputs=(*inputs[:3], OFFSETS),
            lowered=replace(lowered, formula=formula, inputs=slots),
            live=LIVE,
        )
    has_live = isinstance(lowered.formula, Gemm) or (
        isinstance(lowered.formula, Rows) and has_rows(lowered.formula.expression)
    )
    return replace(item, inputs=tuple(inputs), live=LIVE if has_live else "")


def _reading(item: Item, inputs: Sequence[str]) -> Item:
    """The item on other buffers."""
    step = None if item.step is None else replace(item.step, inputs=tuple(inputs))
    return replace(item, inputs=tuple(inputs), step=step)


def _needed(items: Iterator[Item], frame: Frame) -> list[Item]:
    """Without those that nothing reads any more: what makes masks of scores."""
    listed = list(items)
    outputs = {buffer for _, buffer, _ in frame.program.outputs}
    read = outputs | {_padded(buffer) for buffer in outputs}
    kept: list[Item] = []
    for item in reversed(listed):
        if read.intersection(item.outputs):
            kept.append(item)
            read.update(item.inputs, [item.live])
    return kept[::-1]
