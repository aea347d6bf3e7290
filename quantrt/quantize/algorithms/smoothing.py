# SPDX-License-Identifier: Apache-2.0
"""SmoothQuant: outlier channels of what products read move into their weights (arXiv 2211.10438, section 4).

    X W = (X diag(s)^-1) (diag(s) W)        s[c] = max|X[:, c]|^a / max|W[c, :]|^(1 - a)

An activation has one scale for all of its channels, so one channel of a hundred times the usual size leaves
the others few codes. What reads an activation shares its s. The strength a is searched for each activation:
the one whose products are nearest to those in floats, of rounded activations by rounded weights, on rows kept
from calibration (the paper takes one for the whole model).

Where a normalization or a layer makes the activation for these products alone, its constants are divided by
s, which costs nothing. Elsewhere a Mul by 1 / s is put before the products, and the other readers keep what
they had: a residual sum behind the same normalization, or anything behind a GELU.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx_ir as ir

from quantrt.ir.clone import clone
from quantrt.ir.edit import add_constant, constant_of, is_operator
from quantrt.ir.session import float_session
from quantrt.quantize.algorithms.channel_edges import find_edges, input_channels
from quantrt.quantize.algorithms.equalization import (
    ACTIVATION_LEVELS,
    Scales,
    multiply_inputs,
    scale_channels,
)

__all__ = [
    "MULTIPLIED",
    "Site",
    "Smoothing",
    "choose_for_sites",
    "choose_smoothing",
    "multiplied_values",
    "product_inputs",
    "smooth",
]

log = logging.getLogger(__name__)

Array = np.ndarray[Any, Any]

MULTIPLIED = "_smoothed"
"""Ends the names of values that a Mul makes of those of the float model."""

STRENGTHS = (0.35, 0.5, 0.65, 0.8, 0.9)
"""Around 0.5, which suits most models, up to 0.9 for the worst outliers (section 4 and figure 10)."""
CLIPS = (1.0, 0.9, 0.75, 0.6, 0.45, 0.3, 0.15)
"""Parts of the range that an activation's grid is tried on: outliers may be clipped rather than smoothed."""
LEAST_RATIO = 1e-3
"""Narrower channels count as this part of the widest."""
ROWS = 128
"""Of one activation that are kept, at most: each is tried with every strength."""
SPREAD = 16
"""Of one batch that are kept, about."""
FOLD_GAIN = 0.8
"""Predicted noise over that without, above which an activation is left alone: 1 dB."""
MULTIPLY_GAIN = 0.5
"""The same where it costs a Mul: 3 dB."""


@dataclass(frozen=True)
class Smoothing:
    """What activations are divided by, float32 [C].

    Attributes:
        folded: by the layer that makes them, whose constants are divided.
        multiplied: by their own names; a Mul divides them.
    """

    folded: Scales = field(default_factory=dict)
    multiplied: Scales = field(default_factory=dict)


@dataclass(frozen=True)
class Site:
    """An activation that products read.

    Attributes:
        value: its name.
        weights: f32 [C, outputs of all products together].
        layer: the layer that makes it for them alone; None where a Mul is needed.
    """

    value: str
    weights: Array
    layer: str | None


def choose_smoothing(
    graph: ir.Model, batches: Iterable[Mapping[str, Array]], *, qmax: int, only_folded: bool = False
) -> Smoothing:
    """What to divide the activations of a float graph by, where the products of rounded values gain by it.

    Args:
        batches: inputs of the model by name.
        qmax: largest code of a weight.
        only_folded: leave alone what a Mul would be needed for.
    """

    def best(site: Site, ranges: Array, rows: Array) -> Array | None:
        return _best_scale(site, ranges, rows, qmax) if site.layer is not None or not only_folded else None

    return choose_for_sites(graph, batches, best)


def choose_for_sites(
    graph: ir.Model,
    batches: Iterable[Mapping[str, Array]],
    best: Callable[[Site, Array, Array], Array | None],
) -> Smoothing:
    """What to divide activations by, where another rule than that of `choose_smoothing` says what.

    Args:
        best: (site, greatest magnitude of each channel [C], some rows [R, C]) -> factors f32 [C], or None.
    """
    sites = list(_sites(graph))
    folded: dict[str, Array] = {}
    multiplied: dict[str, Array] = {}
    if not sites:
        return Smoothing()
    for site, (ranges, rows) in zip(sites, _observe(graph, sites, batches), strict=True):
        scale = best(site, ranges, rows)
        if scale is not None and site.layer is not None:
            folded[site.layer] = scale
        elif scale is not None:
            multiplied[site.value] = scale
    log.debug("smoothed %d and %d of %d activations", len(folded), len(multiplied), len(sites))
    return Smoothing(folded, multiplied)


def smooth(graph: ir.Model, smoothing: Smoothing) -> ir.Model:
    """A clone that computes the same outputs with smooth activations before its products.

    Raises:
        KeyError: the graph has no such layer or value.
    """
    changed = scale_channels(graph, smoothing.folded)
    changed = clone(changed) if changed is graph else changed
    values = {value.name: value for node in changed.graph for value in node.outputs}
    for name, scale in smoothing.multiplied.items():
        value = values[name]
        readers = _products(value)
        product = _multiply(changed, value, (1.0 / scale).astype(np.float32))
        for reader in readers:
            multiply_inputs(changed, reader, scale)
            reader.replace_input_with(0, product)
    changed.graph.sort()
    return changed


def multiplied_values(graph: ir.Model, multiplied: Scales) -> tuple[tuple[str, ...], Scales]:
    """Of the graph that was smoothed: what its Muls make, and the scales by the products that read it."""
    values = {value.name: value for node in graph.graph for value in node.outputs}
    readers = {
        reader.name or "": scale for name, scale in multiplied.items() for reader in _products(values[name])
    }
    return tuple(f"{name}{MULTIPLIED}" for name in multiplied), readers


def product_inputs(graph: ir.Model) -> dict[str, int]:
    """Every value that products with constant weights read, and how many channels it has."""
    return {
        value.name or "": input_channels(products[0]) or 0
        for node in graph.graph
        for value in node.outputs
        if (products := _products(value))
    }


def _sites(graph: ir.Model) -> Iterator[Site]:
    """Every activation of the main graph that products with constant weights read."""
    taken: set[ir.Value] = set()
    for name, edge in find_edges(graph.graph).items():
        products = [reader for reader in edge.readers if is_operator(reader, "MatMul", "Gemm")]
        is_one = len(edge.rounded) == 1  # of a residual stream there are more
        if is_one and len(products) == len(edge.readers):
            taken.update(edge.rounded)
            yield Site(edge.rounded[0].name or "", _weights(products), name)
    for node in graph.graph:
        for value in node.outputs:
            products = _products(value)
            if products and value not in taken and not (value.name or "").endswith(MULTIPLIED):
                yield Site(value.name or "", _weights(products), None)


def _products(value: ir.Value) -> list[ir.Node]:
    """Products of the main graph that multiply a value by a constant matrix."""
    maker = value.producer()
    return [
        use.node
        for use in value.uses()
        if use.idx == 0
        and maker is not None
        and use.node.graph is maker.graph
        and is_operator(use.node, "MatMul", "Gemm")
        and input_channels(use.node) is not None
    ]


def _weights(readers: Sequence[ir.Node]) -> Array:
    """The weights of products that read the same, side by side: [C, outputs]."""
    parts = []
    for node in readers:
        weight = constant_of(node.inputs[1])
        assert weight is not None  # products have one
        parts.append(weight if weight.shape[0] == input_channels(node) else weight.T)
    return np.concatenate(parts, axis=1)


def _observe(
    graph: ir.Model, sites: Sequence[Site], batches: Iterable[Mapping[str, Array]]
) -> list[tuple[Array, Array]]:
    """Greatest magnitude of each channel [C], and some rows [R, C], of each activation."""
    names = [site.value for site in sites]
    session = float_session(graph, extra_outputs=names)
    ranges: list[Any] = [0.0] * len(sites)
    kept: list[list[Array]] = [[] for _ in sites]
    for batch in batches:
        for index, array in enumerate(session.run(names, dict(batch))):
            rows = array.reshape(-1, array.shape[-1])
            ranges[index] = np.maximum(ranges[index], np.abs(rows).max(axis=0, initial=0.0))
            kept[index].append(rows[:: max(1, len(rows) // SPREAD)].copy())
    return [(r, _thinned(np.concatenate(rows))) for r, rows in zip(ranges, kept, strict=True)]


def _thinned(rows: Array) -> Array:
    return rows[np.linspace(0, len(rows) - 1, min(ROWS, len(rows))).astype(np.int64)]


def _best_scale(site: Site, ranges: Array, rows: Array, qmax: int) -> Array | None:
    """The scale with the least error of the products; None where that is not worth it."""
    widest = float(np.max(ranges, initial=0.0))
    if not (np.isfinite(widest) and widest > 0 and np.isfinite(rows).all()):
        return None
    inputs = np.maximum(ranges, widest * LEAST_RATIO).astype(np.float64)
    columns = np.abs(site.weights).max(axis=1)
    columns = np.maximum(columns, columns.max(initial=0.0) * LEAST_RATIO).astype(np.float64)
    if columns.max(initial=0.0) == 0:
        return None
    scales = [_centred(inputs**a / columns ** (1 - a)) for a in STRENGTHS]
    wanted = rows @ site.weights
    without, *errors = (
        float(
            np.square(
                _rounded_product(rows, site.weights, scale, ranges, qmax) - wanted, dtype=np.float64
            ).sum()
        )
        for scale in (np.ones(len(inputs), np.float32), *scales)
    )
    best = int(np.argmin(errors))
    gain = FOLD_GAIN if site.layer is not None else MULTIPLY_GAIN
    return scales[best] if errors[best] < gain * without else None


def _centred(scale: Array) -> Array:
    """With a geometric mean of 1, so that neither side leaves the range of halves."""
    return np.asarray(scale / np.exp(np.mean(np.log(scale))), np.float32)


def _rounded_product(rows: Array, weights: Array, scale: Array, ranges: Array, qmax: int) -> Array:
    """Rounded rows by rounded weights, the rows divided by `scale`."""
    scaled = weights * scale[:, None]
    unit = np.abs(scaled).max(axis=0) / np.float32(qmax)
    unit = np.where(unit > 0, unit, np.float32(1.0))
    rounded = np.rint(scaled / unit) * unit
    power = np.square(scaled).sum(axis=1, dtype=np.float64)
    x = _best_rounded(rows / scale, ranges / scale, power)
    return np.asarray(x @ rounded)


def _best_rounded(x: Array, ranges: Array, power: Array) -> Array:
    """Rows on the grid, of those on parts of their range, whose errors matter least to the products.

    Args:
        power: f64 [C] what a unit of error of each channel adds to the products' squared error.
    """
    amax = float(ranges.max())
    lo, hi = float(min(x.min(), 0.0)), float(max(x.max(), 0.0))
    low, high = (-amax if lo < -hi / 8 else lo), amax if hi >= -lo else hi
    best, least = x, np.inf
    for clip in CLIPS:
        step = max((high - low) * clip / ACTIVATION_LEVELS, float(np.finfo(np.float32).tiny))
        zero = float(np.rint(low * clip / step))
        rounded = np.clip(np.rint(x / np.float32(step)), zero, zero + ACTIVATION_LEVELS) * np.float32(step)
        error = float(np.square(rounded - x, dtype=np.float64).sum(axis=0) @ power)
        if error < least:
            best, least = rounded, error
    return best


def _multiply(graph: ir.Model, value: ir.Value, factors: Array) -> ir.Value:
    """A Mul of a value by constant factors; nothing reads it yet."""
    name = f"{value.name}{MULTIPLIED}"
    node = ir.node("Mul", [value, add_constant(graph, f"{name}_factors", factors)], name=name)
    node.outputs[0].name = name
    node.outputs[0].shape, node.outputs[0].type = value.shape, value.type
    graph.graph.append(node)
    return node.outputs[0]
