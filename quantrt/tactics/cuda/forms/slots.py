# SPDX-License-Identifier: Apache-2.0
"""What the formula of a region reads."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import onnx_ir as ir

from quantrt.quantize.quantized_model import Use
from quantrt.regions.formula_expression import expression_of
from quantrt.regions.region import (
    Attention,
    Concat,
    Conv,
    ConvTranspose,
    Gemm,
    GroupNorm,
    LinearAttention,
    Pool,
    Region,
    Resize,
    Rows,
)

__all__ = ["Slot", "slots_of"]


@dataclass(frozen=True)
class Slot:
    """One tensor that a formula reads.

    Attributes:
        value: its name.
        use: the edge that reads it; None where a region reads it as a whole.
    """

    value: str
    use: Use | None = None


def slots_of(region: Region, nodes: Mapping[str, ir.Node]) -> tuple[Slot, ...]:
    """What a region's formula reads, in its order; a value that is read twice is there twice.

    Args:
        nodes: of the graph, by name.
    """
    return tuple(_slots(region, nodes))


def _slots(region: Region, nodes: Mapping[str, ir.Node]) -> Iterator[Slot]:
    match region.formula:
        case Gemm(x=edge) | Conv(x=edge) | ConvTranspose(x=edge) | Pool(x=edge) | Resize(x=edge):
            yield _slot(edge, nodes)
        case GroupNorm(x=edge, shift=shift):
            yield from (_slot(one, nodes) for one in (edge, shift) if one is not None)
        case Attention(edges=edges, has_mask=has_mask):
            yield from (_slot(edge, nodes) for edge in edges)
            if has_mask:
                yield Slot(region.inputs[-1])
        case Concat(edges=edges) | LinearAttention(edges=edges):
            yield from (_slot(edge, nodes) for edge in edges)
        case Rows():
            pass
        case _:
            yield from (Slot(value) for value in region.inputs)
    expression = expression_of(region.formula)
    if expression is not None:
        yield from (Slot(x.name, x.use) for x in expression.operands if x.kind == "tensor")


def _slot(edge: Use, nodes: Mapping[str, ir.Node]) -> Slot:
    value = nodes[edge[0]].inputs[edge[1]]
    return Slot((value.name if value is not None else None) or "", edge)
