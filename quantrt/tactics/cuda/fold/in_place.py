# SPDX-License-Identifier: Apache-2.0
"""Channels that are put side by side are written there by what makes them, so that nothing is left to copy.

The image that a Concat makes is memory that its producers share: each stores its pixels with gaps between,
where the other producers' channels belong. Whoever else reads a part reads it with these gaps. A Concat with
a producer or a reader that knows no gaps stays a kernel of its own, and a mismatch says why.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate

from quantrt.kernels.epilogue.spec import ELEMENT_BYTES
from quantrt.plan.program import Place, Step
from quantrt.regions.region import Concat, Conv, ConvTranspose, Mismatch, Pool, Resize
from quantrt.tactics.cuda.forms.pixel_gaps import PITCH_BYTES
from quantrt.tactics.cuda.program.assemble import Item
from quantrt.tactics.cuda.program.frame import Frame
from quantrt.tactics.cuda.tactic import TensorFacts, dense_strides

__all__ = ["InPlace", "join_in_place"]

PATTERN = "concat in place"
LEAST_CAPABILITY = 80
"""From which on there are kernels of ours for convolutions."""

IMAGE_RANK = 4
_CHANNELS = 1

_TYPES = ("int8", "float16", "bfloat16")
"""Of what kernels of ours convolve and pool."""


@dataclass(frozen=True)
class InPlace:
    """A frame whose Concats cost nothing, as far as that can be.

    Attributes:
        frame: with a step that runs nothing in place of such a Concat, and with the places of its parts.
        facts: with the strides that these parts have there.
        mismatches: why others stay what they are.
    """

    frame: Frame
    facts: dict[str, TensorFacts]
    mismatches: tuple[Mismatch, ...]


def join_in_place(frame: Frame, facts: Mapping[str, TensorFacts], capability: int) -> InPlace:
    """Find the Concats whose producers can write in place.

    Args:
        facts: of every buffer, at the shapes that are timed.
        capability: compute capability of the GPU.
    """
    finder = _Finder(frame, facts, capability)
    items, mismatches = [], []
    for item in frame.items:
        if item.lowered is None or not isinstance(item.lowered.formula, Concat):
            items.append(item)
            continue
        reason = finder.why_not(item, item.lowered.formula)
        if reason:
            mismatches.append(Mismatch(PATTERN, reason, item.lowered.region.nodes[0]))
            items.append(item)
        else:
            items.append(finder.join(item))
    found = dict(facts)
    for buffer, place in finder.places.items():
        found[buffer] = _slice_of(facts[buffer], place.channels)
    joined = replace(frame, items=tuple(items), places=finder.places)
    return InPlace(joined, found, tuple(mismatches))


@dataclass
class _Finder:
    """Who makes and who reads every buffer; the places that were given so far, by buffer."""

    frame: Frame
    facts: Mapping[str, TensorFacts]
    capability: int
    places: dict[str, Place] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._makers: dict[str, int] = {}
        self._readers: dict[str, list[Item]] = {}
        for number, item in enumerate(self.frame.items):
            self._makers.update(dict.fromkeys(item.outputs, number))
            for buffer in dict.fromkeys(item.inputs):
                self._readers.setdefault(buffer, []).append(item)
        self._kept = {buffer for _, buffer, _ in self.frame.program.outputs}

    def why_not(self, item: Item, formula: Concat) -> str:
        """Why a Concat has to copy, in one phrase; empty where it need not."""
        whole = self.facts.get(item.outputs[0])
        if whole is None or any(buffer not in self.facts for buffer in item.inputs):
            return "its shapes are not known"
        rank = len(whole.shape)
        makers = [self._makers.get(buffer) for buffer in item.inputs]
        reasons = (
            (self.capability < LEAST_CAPABILITY, f"no kernels with gaps below {LEAST_CAPABILITY}"),
            (rank != IMAGE_RANK or formula.axis % rank != _CHANNELS, "not along the channels of images"),
            (whole.dtype not in _TYPES, f"images of {whole.dtype}"),
            (not _is_image(whole), "channels that are not innermost"),
            (None in makers, "an input of the model among what is joined"),
            (len(set(makers)) < len(makers), "two of its inputs are made by one region"),
        )
        found = next((reason for is_so, reason in reasons if is_so), "")
        return found or next(self._parts_that_cannot(item), "")

    def _parts_that_cannot(self, item: Item) -> Iterator[str]:
        for first, buffer in zip(self._firsts(item), item.inputs, strict=True):
            part = self.facts[buffer]
            maker = self.frame.items[self._makers[buffer]]
            size = ELEMENT_BYTES[part.dtype]
            if not _is_image(part):
                yield f"'{buffer}' does not lie channel by channel"
            if (
                first * size % PITCH_BYTES
                or self.facts[item.outputs[0]].shape[_CHANNELS] * size % PITCH_BYTES
            ):
                yield f"channels that do not begin at multiples of {PITCH_BYTES} bytes"
            if buffer in self.places:
                yield f"'{buffer}' is part of another already"
            if buffer in self._kept:
                yield f"'{buffer}' is an output of the model"
            if not (_knows_gaps(maker) or _spreads(maker)):
                yield f"'{maker.region}' makes '{buffer}' without gaps between pixels"
            for reader in self._readers[buffer]:
                if reader is not item and not _reads_gaps(reader):
                    yield f"'{reader.region}' reads '{buffer}' without gaps between pixels"

    def join(self, item: Item) -> Item:
        """The step in the Concat's stead; its parts get their places."""
        channels = self.facts[item.outputs[0]].shape[_CHANNELS]
        parts = sorted(zip(item.inputs, self._firsts(item), strict=True), key=lambda x: self._makers[x[0]])
        (beside, beside_first), *others = parts
        self.places[beside] = Place(beside, beside_first, channels)
        for buffer, first in others:
            self.places[buffer] = Place(buffer, first, channels, beside, beside_first)
        nodes = [] if item.lowered is None else list(item.lowered.region.nodes)
        options = {"channels": channels, "nodes": nodes}
        return replace(
            item, lowered=None, step=Step("joined", item.region, item.inputs, item.outputs, options)
        )

    def _firsts(self, item: Item) -> Sequence[int]:
        """Where the channels of every part begin."""
        counts = [self.facts[buffer].shape[_CHANNELS] for buffer in item.inputs]
        return [0, *accumulate(counts[:-1])]


def _knows_gaps(item: Item) -> bool:
    """Whether kernels of ours read and write a region's images with gaps between pixels."""
    if item.lowered is None:
        return False
    formula, weight = item.lowered.formula, item.lowered.weight
    if isinstance(formula, Conv):
        is_depthwise = formula.groups > 1 and weight is not None and weight.shape[1] == 1
        return len(formula.strides) == IMAGE_RANK - 2 and not is_depthwise
    return (isinstance(formula, Pool) and not formula.is_global) or (
        isinstance(formula, Resize) and formula.is_nearest
    )


def _spreads(item: Item) -> bool:
    """Whether it is a transposed convolution by a kernel of ours, which writes with gaps."""
    formula = None if item.lowered is None else item.lowered.formula
    return isinstance(formula, ConvTranspose) and formula.is_spread


def _reads_gaps(item: Item) -> bool:
    is_copy = item.lowered is not None and isinstance(item.lowered.formula, Concat)
    is_shape = item.step is not None and item.step.is_host
    return is_copy or is_shape or _knows_gaps(item)


def _is_image(facts: TensorFacts) -> bool:
    """Whether channels lie innermost, without gaps; of an axis of one element the stride says nothing."""
    dense = dense_strides(facts.shape, channels_last=True)
    rows = zip(facts.shape, facts.strides, dense, strict=True)
    return len(facts.shape) == IMAGE_RANK and all(
        stride == wanted for size, stride, wanted in rows if size > 1
    )


def _slice_of(facts: TensorFacts, channels: int) -> TensorFacts:
    """The same images as a slice of the channels of larger ones."""
    images, _, *size = facts.shape
    return replace(facts, strides=dense_strides((images, channels, *size), channels_last=True))
