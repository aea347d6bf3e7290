# SPDX-License-Identifier: Apache-2.0
"""Products that are slower in 8 bits than in floats, and the model in which they are left float."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import onnx_ir as ir

from quantrt.quantize.algorithms.bias_correction import uncorrected
from quantrt.quantize.qparams import QuantizedTensor
from quantrt.quantize.quantized_model import Decision, QuantizedModel, Use
from quantrt.tactics.cuda.choices import Choices

__all__ = ["leave_float", "slower_products"]

SIZE_PRICE_RATIO = 0.005
"""Of an engine's time, what all of its weights may cost in codes, each product its share: in floats they take
twice the memory. Without it a ResNet-50's classifier, 8 % of its weights, is float for a tenth of a
microsecond, and the file 0.273 of the ONNX file (docs/results/cuda-h200.md)."""


def slower_products(
    choices: Choices,
    float_us: Mapping[str, float],
    rows: Mapping[str, Mapping[str, Any]],
    weights: Mapping[Use, QuantizedTensor],
) -> dict[str, str]:
    """Why, by the name of the product's node.

    A conversion to codes counts for the products that read them, in equal parts.

    Args:
        float_us: what every region takes in floats, where that is known.
        rows: of the program with codes, by region; see `program_notes`.
        weights: of the quantized model; see SIZE_PRICE_RATIO.
    """
    sizes = Counter[str]()
    for use, tensor in weights.items():
        sizes[use[0]] += tensor.codes.size
    us_per_weight = SIZE_PRICE_RATIO * choices.total_us / max(sizes.total(), 1)
    readers = Counter(row["reads"] for row in rows.values() if row["codes"])
    found = {}
    for region, row in rows.items():
        before = float_us.get(region)
        if row["product"] is None or not row["codes"] or before is None or row["median_us"] is None:
            continue
        conversion = choices.by_region.get(f"convert {row['reads']}")
        extra_us = 0.0 if conversion is None else (conversion.median_us or 0.0) / readers[row["reads"]]
        time_us = row["median_us"] + extra_us
        if time_us > before + us_per_weight * sizes[row["product"]]:
            found[row["product"]] = (
                f"slower in {row['codes']} on this GPU: {time_us:.1f} us against {before:.1f} us"
            )
    return found


def leave_float(
    quantized: QuantizedModel, reasons: Mapping[str, str], floats: ir.Model | None = None
) -> QuantizedModel:
    """The same model with some of its nodes in floats. All others keep what they are, grids and codes.

    Args:
        reasons: why, by the name of the node.
        floats: the float graph that was rounded, where biases were corrected for the rounding of weights:
            what is left float takes its own back.
    """
    placement = quantized.placement
    decisions = tuple(
        Decision(row.node, row.op_type, False, reasons[row.node]) if row.node in reasons else row
        for row in placement.decisions
    )
    uses = {use: grid for use, grid in placement.uses.items() if use[0] not in reasons}
    weights = {use: axis for use, axis in placement.weights.items() if use[0] not in reasons}
    graph = quantized.graph if floats is None else uncorrected(quantized.graph, floats, reasons)
    return replace(
        quantized,
        graph=graph,
        placement=replace(placement, uses=uses, weights=weights, decisions=decisions),
        weights={use: codes for use, codes in quantized.weights.items() if use[0] not in reasons},
    )
