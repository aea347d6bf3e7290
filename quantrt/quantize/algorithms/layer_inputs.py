# SPDX-License-Identifier: Apache-2.0
"""X' X of what layers read on samples: all that layer-wise rounding has to know of them.

    |X Wq - X W|^2 = sum over columns n of  e' (X' X) e,      e = Wq[:, n] - W[:, n]

Where a bias takes the mean error back, what is left is that of X less the means of its columns.
X has a row for every product of the weight: of a MatMul or Gemm a row of its input, of a convolution a window
of its images, for each of its groups. Matrices are held a part of the layers at a time.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import onnx_ir as ir

from quantrt.errors import ModelError
from quantrt.ir.edit import constant_of, int_attribute
from quantrt.ir.session import float_session
from quantrt.reference.windows import cut_windows, windows_of

__all__ = ["as_matrix", "from_matrix", "is_transposed", "observe_grams"]

Array = np.ndarray[Any, Any]
Batches = Sequence[Mapping[str, Array]]

GRAM_BYTES = 1 << 29
"""Of the matrices X' X that are held at once; more need further passes over the data."""

WINDOWS = 256
"""Windows of an image that are taken, at most: neighbours are much alike, and few are as good as all."""


def observe_grams(
    graph: ir.Model, nodes: Sequence[ir.Node], batches: Batches, centred: Collection[ir.Node] = ()
) -> Iterator[tuple[ir.Node, Array]]:
    """X' X / rows of each of these layers, f64 [groups, K, K], in their order.

    Args:
        centred: the layers of which it is the covariance, X less its means.
        graph: that the layers are in, or one with values of the same names: it is run.
        nodes: MatMul, Gemm or Conv with a constant weight as their second input.

    Raises:
        ModelError: what a layer reads is not finite on the samples; names it.
    """
    for part in _parts(nodes):
        grams = _grams(graph, part, batches)
        for node in part:
            gram, mean = grams[_key(node)]
            if node in centred:
                gram = gram - mean[:, :, None] * mean[:, None, :]
            if not np.isfinite(gram).all():
                raise ModelError(f"what '{node.name}' reads is not finite on the samples")
            yield node, gram


def as_matrix(weight: Array, node: ir.Node) -> Array:
    """A layer's weight as [groups, K, N]: N outputs of each group, K inputs of each of these."""
    if node.op_type == "Conv":
        groups = int_attribute(node, "group", 1)
        return np.asarray(weight.reshape(groups, weight.shape[0] // groups, -1).transpose(0, 2, 1))
    return np.asarray(weight.T if is_transposed(node) else weight)[None]


def from_matrix(matrix: Array, node: ir.Node, shape: Sequence[int]) -> Array:
    """What `as_matrix` was given, of this shape."""
    if node.op_type == "Conv":
        return np.asarray(matrix.transpose(0, 2, 1).reshape(shape))
    return np.asarray(matrix[0].T if is_transposed(node) else matrix[0])


def is_transposed(node: ir.Node) -> bool:
    """Whether a layer reads its weight as [N, K]."""
    return node.op_type == "Gemm" and bool(int_attribute(node, "transB", 0))


def _weight(node: ir.Node) -> Array:
    weight = constant_of(node.inputs[1])
    if weight is None:
        raise ValueError(f"'{node.name}' has no constant weight")
    return weight


def _key(node: ir.Node) -> tuple[Any, ...]:
    """What layers with the same matrix have in common."""
    name = node.inputs[0].name if node.inputs[0] is not None else ""
    return (name,) if node.op_type != "Conv" else (name, node.name)


def _parts(nodes: Sequence[ir.Node]) -> Iterator[list[ir.Node]]:
    """The layers, in runs whose matrices fit into GRAM_BYTES."""
    part: list[ir.Node] = []
    used = 0
    for node in nodes:
        groups, inputs, _ = as_matrix(_weight(node), node).shape
        needed = groups * inputs**2 * 8
        if part and used + needed > GRAM_BYTES:
            yield part
            part, used = [], 0
        part.append(node)
        used += needed
    if part:
        yield part


def _grams(
    graph: ir.Model, nodes: Sequence[ir.Node], batches: Batches
) -> dict[tuple[Any, ...], tuple[Array, Array]]:
    """X' X / rows, and the means of the columns of X, f64 [groups, K]."""
    layers = {_key(node): node for node in nodes}
    inputs = {value.name for value in graph.graph.inputs}
    taps = sorted({key[0] for key in layers} - inputs)
    session = float_session(graph, extra_outputs=taps)
    squares: dict[tuple[Any, ...], Any] = dict.fromkeys(layers, 0.0)
    sums: dict[tuple[Any, ...], Any] = dict.fromkeys(layers, 0.0)
    counts = dict.fromkeys(layers, 0)
    for index, batch in enumerate(batches):
        tapped = session.run(taps, dict(batch)) if taps else []
        values = dict(batch) | dict(zip(taps, tapped, strict=True))
        for key, node in layers.items():
            rows = _rows(values[key[0]], node, np.random.default_rng(index))
            squares[key] = squares[key] + (rows.transpose(0, 2, 1) @ rows).astype(np.float64)
            sums[key] = sums[key] + rows.sum(axis=1, dtype=np.float64)
            counts[key] += rows.shape[1]
    totals = {key: max(counts[key], 1) for key in layers}
    return {
        key: (np.asarray(squares[key] / total), np.asarray(sums[key] / total))
        for key, total in totals.items()
    }


def _rows(x: Array, node: ir.Node, rng: np.random.Generator) -> Array:
    """What a layer multiplies its weight with, [groups, rows, K]; of a convolution some of the windows."""
    if node.op_type != "Conv":
        return x.reshape(1, -1, x.shape[-1])
    kernel, groups = _weight(node).shape[2:], int_attribute(node, "group", 1)
    cut = cut_windows(x, kernel, windows_of(node, x.shape[2:], kernel))
    cut = np.moveaxis(cut, 1, 1 + len(kernel))  # [N, places..., C, taps...]
    places = cut.shape[: 1 + len(kernel)]
    total = int(np.prod(places))
    kept = rng.permutation(total)[: WINDOWS * len(x)]
    picked = cut[np.unravel_index(kept, places)]
    return np.ascontiguousarray(picked.reshape(len(kept), groups, -1).transpose(1, 0, 2))
