# SPDX-License-Identifier: Apache-2.0
"""Softmax attention in its exported spellings, and ONNX's own operator, as regions."""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import replace

import onnx_ir as ir

from quantrt.ir.edit import constant_of, int_attribute, is_operator
from quantrt.regions.anchors.anchor import FLOATS, is_float
from quantrt.regions.attention.match import Mask, Match, NoMatchError
from quantrt.regions.attention.operator import recognise_operator
from quantrt.regions.attention.spelling import recognise_softmax
from quantrt.regions.clusters import Clusters
from quantrt.regions.facts.contents import Dim
from quantrt.regions.facts.facts import Facts
from quantrt.regions.facts.triangles import Triangle, last_sizes, triangle_of
from quantrt.regions.region import Attention, Mismatch, Region

__all__ = ["find_attention"]

_RANK = 4
_CAUSAL = {"kept": Triangle(1.0, 0.0), "dropped": Triangle(0.0, 1.0)}
_UNREACHED = -1e30
"""A number from here down hides a key from a query that sees another one, whatever the scores are.

A causal mask leaves every query its first key. Beside that one's score s0 a key of score s with c added has
the weight exp(s + c - s0): 0 in float32 where s - s0 < -c - 104. Products of float16 are below 1.1e12 (heads
of 256 times 65504^2), and others would have to be beyond 5e29. Of -1e4 or -1e9 nobody can tell: such a mask
is taken as the numbers that it has.
"""

_NOTHING = {"added": 0.0, "kept": 1.0, "dropped": 0.0}
"""Of masks: truths by which a query sees the keys up to its own place, and elements without effect."""


def find_attention(
    facts: Facts, clusters: Clusters, claimed: Collection[int]
) -> tuple[list[Region], list[Mismatch]]:
    """Regions of attention among the nodes outside `claimed`; their groups in `clusters` are merged."""
    regions: list[Region] = []
    mismatches: list[Mismatch] = []
    for position, node in enumerate(facts.nodes):
        try:
            match = _recognised(position, facts)
            if match is None:
                continue
            scores = _check(match, facts, position)
            mask = _settle_masks(match, scores, facts)
            if any(member in claimed for member in match.nodes) or not clusters.merge(match.nodes):
                raise NoMatchError("its parts cannot run as one", position)
            regions.append(_region(match, mask, facts, node.name or ""))
        except NoMatchError as failure:
            name = facts.nodes[failure.position].name or ""
            mismatches.append(Mismatch("attention", failure.reason, name))
    return regions, mismatches


def _recognised(position: int, facts: Facts) -> Match | None:
    node = facts.nodes[position]
    if is_operator(node, "Attention"):
        return recognise_operator(position, facts)
    return recognise_softmax(position, facts) if is_operator(node, "Softmax") else None


def _check(match: Match, facts: Facts, position: int) -> tuple[Dim, ...]:
    """The shape of the scores.

    Raises:
        NoMatchError: types or shapes are not what the formula says.
    """
    values = [facts.nodes[reader].inputs[place] for reader, place in match.edges]
    if not all(is_float(value, facts) for value in values):
        raise NoMatchError("q, k or v is not a float activation", position)
    shapes = [facts.sizes.shape(value) for value in values]
    q, k, v = ((shape or ())[:_RANK] for shape in shapes)
    if any(shape is None or len(shape) != _RANK for shape in shapes):
        raise NoMatchError("q, k or v does not have four axes", position)
    if not (k[:2] == v[:2] and q[0] == k[0] and (q[1] == k[1] or _is_multiple(q[1], k[1]))):
        raise NoMatchError("q, k and v are not known to have the same batch and heads", position)
    if is_operator(facts.nodes[position], "Softmax"):
        axis = int_attribute(facts.nodes[position], "axis", -1 if facts.opset >= 13 else 1)
        if axis not in (-1, _RANK - 1):
            raise NoMatchError("the Softmax is not over the last axis", position)
    return (*q[:3], k[3] if match.is_transposed else k[2])


def _is_multiple(heads: object, shared: object) -> bool:
    """Whether every head of k and v serves a whole number of heads of q."""
    return isinstance(heads, int) and isinstance(shared, int) and shared > 0 and heads % shared == 0


def _settle_masks(match: Match, scores: tuple[Dim, ...], facts: Facts) -> Mask | None:
    """The one mask that is neither causal nor without effect; `match.is_causal` says whether one was causal.

    Raises:
        NoMatchError: there are two, or it is nothing that can be added to the scores.
    """
    kept: list[Mask] = []
    for mask in match.masks:
        triangle = triangle_of(mask.value, facts)
        if triangle is not None and triangle.below == triangle.above == _NOTHING[mask.kind]:
            continue
        is_whole = triangle is not None and last_sizes(mask.value, facts) == scores[-2:]
        if triangle is not None and is_whole and _is_causal(triangle, mask):
            # Where a second mask hides all keys up to a query's own place, a finite number has it see later
            # ones alike too, in the model; here it sees none of them. Such queries are padding in front.
            match.is_causal = True
        else:
            kept.append(mask)
    if len(kept) > 1:
        raise NoMatchError("it has two masks that are not causal with -inf", kept[1].position)
    for mask in kept:
        _check_mask(mask, scores, facts)
    return kept[0] if kept else None


def _is_causal(triangle: Triangle, mask: Mask) -> bool:
    """Whether the numbers on both sides of the diagonal let a query see just the keys up to its own place."""
    if mask.kind == "added":
        return triangle.below == 0.0 and triangle.above <= _UNREACHED
    return triangle == _CAUSAL[mask.kind] and mask.number <= _UNREACHED


def _check_mask(mask: Mask, scores: tuple[Dim, ...], facts: Facts) -> None:
    value, position = mask.value, mask.position
    array = constant_of(value)
    is_constant = array is not None
    if array is not None and mask.kind != "added" and math.isfinite(mask.number):
        is_hidden = array.astype(bool) == (mask.kind == "dropped")
        if is_hidden.reshape(-1, array.shape[-1] if array.ndim else 1).all(-1).any():
            # As an addend, as constants are, the number would leave the scores in what is to be one number.
            raise NoMatchError("a constant mask puts one finite number in the place of all scores", position)
    types = FLOATS if mask.kind == "added" else (ir.DataType.BOOL,)
    if value.dtype not in types or not (is_constant or facts.is_activation(value)):
        raise NoMatchError("the mask is neither of floats nor of truths", position)
    shape = facts.sizes.shape(value)
    if shape is None or len(shape) > _RANK:
        raise NoMatchError("the mask has an unknown shape", position)
    if len(shape) >= 2 and (known := last_sizes(value, facts)) is not None:
        shape = (*shape[:-2], *known)
    if any(size not in (1, full) for size, full in zip(shape[::-1], scores[::-1], strict=False)):
        raise NoMatchError("the mask is not known to have the shape of the scores", position)


def _region(match: Match, mask: Mask | None, facts: Facts, name: str) -> Region:
    members = sorted(match.nodes)
    edges = tuple((facts.nodes[reader].name or "", place) for reader, place in match.edges)
    values = [facts.nodes[reader].inputs[place] for reader, place in match.edges]
    formula = Attention(edges, match.scale, match.is_transposed, has_mask=False, is_causal=match.is_causal)
    if mask is not None:
        is_constant = constant_of(mask.value) is not None
        formula = replace(
            formula,
            has_mask=not is_constant,
            mask_kind=mask.kind,
            mask_value=mask.number,
            mask_constant=(mask.value.name or "") if is_constant else "",
        )
        values += [] if is_constant else [mask.value]
    return Region(
        name,
        formula,
        tuple(facts.nodes[position].name or "" for position in members),
        tuple(dict.fromkeys(value.name or "" for value in values if value is not None)),
        facts.crossing(members)[1],
    )
