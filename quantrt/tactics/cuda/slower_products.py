# SPDX-License-Identifier: Apache-2.0
"""Products that are slower in 8 bits than in floats, and the model in which they are left float."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from quantrt.quantize.quantized_model import Decision, QuantizedModel
from quantrt.tactics.cuda.choices import Choices

__all__ = ["leave_float", "slower_products"]


def slower_products(
    choices: Choices, float_us: Mapping[str, float], rows: Mapping[str, Mapping[str, Any]]
) -> dict[str, str]:
    """Why, by the name of the product's node.

    A conversion to codes counts for the products that read them, in equal parts.

    Args:
        float_us: what every region takes in floats, where that is known.
        rows: of the program with codes, by region; see `program_notes`.
    """
    readers = Counter(row["reads"] for row in rows.values() if row["codes"])
    found = {}
    for region, row in rows.items():
        before = float_us.get(region)
        if row["product"] is None or not row["codes"] or before is None or row["median_us"] is None:
            continue
        conversion = choices.by_region.get(f"convert {row['reads']}")
        extra_us = 0.0 if conversion is None else (conversion.median_us or 0.0) / readers[row["reads"]]
        time_us = row["median_us"] + extra_us
        if time_us > before:
            found[row["product"]] = (
                f"slower in {row['codes']} on this GPU: {time_us:.1f} us against {before:.1f} us"
            )
    return found


def leave_float(quantized: QuantizedModel, reasons: Mapping[str, str]) -> QuantizedModel:
    """The same model with some of its nodes in floats. All others keep what they are, grids and codes.

    What is left float reads floats, and multiplies the values that its weight's codes stand for: biases were
    corrected for these, and a file holds them in a byte each (`quantrt.plan.coded_weight`).

    Args:
        reasons: why, by the name of the node.
    """
    placement = quantized.placement
    decisions = tuple(
        Decision(row.node, row.op_type, False, reasons[row.node]) if row.node in reasons else row
        for row in placement.decisions
    )
    uses = {use: grid for use, grid in placement.uses.items() if use[0] not in reasons}
    return replace(quantized, placement=replace(placement, uses=uses, decisions=decisions))
