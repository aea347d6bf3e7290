# SPDX-License-Identifier: Apache-2.0
"""How large an engine's model is: the weights of every region in its precision, and all the rest.

bytes = rest + sum over regions of   4 or 2 per weight in floats,   1 per weight and 4 per scale in 8 bits

What an engine wholly in 8 bits has beyond that, such as the nodes that round, is shared among regions.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from quantrt.assign.tables.region import FLOAT, Region
from quantrt.quantize.quantized_model import QuantizedModel

__all__ = ["SizeModel", "size_model"]

FLOAT_BYTES = {"fp32": 4, "fp16": 2, "bf16": 2}


@dataclass(frozen=True)
class SizeModel:
    """Bytes of regions and of the rest.

    Attributes:
        bytes_of: by region and precision.
        rest_bytes: of the graph, and of what is the same in every precision.
    """

    bytes_of: Mapping[str, Mapping[str, int]]
    rest_bytes: int

    def predict_bytes(self, assignment: Mapping[str, str]) -> int:
        """Of an engine's model with this assignment."""
        return self.rest_bytes + sum(self.bytes_of[name][kind] for name, kind in assignment.items())


def size_model(
    quantized: QuantizedModel,
    regions: Sequence[Region],
    *,
    float_bytes: int,
    codes_bytes: int,
    float_precision: str = "fp32",
) -> SizeModel:
    """The model for one 8-bit precision beside floats.

    Args:
        quantized: everything that can be is 8-bit in it.
        float_bytes, codes_bytes: of the engines' models in which everything is float, or in 8 bits.
        float_precision: of what is float in both.
    """
    precision = quantized.target.precision
    codes: dict[str, int] = {}
    floats: dict[str, int] = {}
    for (node, _), weight in quantized.weights.items():
        codes[node] = codes.get(node, 0) + weight.codes.nbytes + weight.qparams.scale.nbytes
        floats[node] = floats.get(node, 0) + weight.codes.size * FLOAT_BYTES[float_precision]
    bytes_of = {
        region.name: {
            FLOAT: sum(floats.get(node, 0) for node in region.nodes),
            precision: sum(codes.get(node, 0) for node in region.nodes),
        }
        for region in regions
    }
    rest = max(float_bytes - sum(row[FLOAT] for row in bytes_of.values()), 0)
    beyond = max(codes_bytes - rest - sum(row[precision] for row in bytes_of.values()), 0)
    for row in bytes_of.values():
        row[precision] += -(-beyond // len(bytes_of))  # rounded up: a size that is asked for is a limit
    return SizeModel(bytes_of, rest)
