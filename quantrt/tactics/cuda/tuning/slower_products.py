# SPDX-License-Identifier: Apache-2.0
"""Products that are slower in 8 bits than in floats, and the model in which they are left float."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any

from quantrt.dtypes import CODE_TYPES
from quantrt.quantize.quantized_model import Decision, QuantizedModel
from quantrt.tactics.cuda.tuning.choices import Choices

__all__ = ["leave_float", "slower_products"]

CODED_TYPES = frozenset(row.name for row in CODE_TYPES)

FLOAT_BYTES = 2
"""Of an element in the floats beside codes: fp16 or bf16."""


def slower_products(
    choices: Choices,
    float_us: Mapping[str, float],
    rows: Mapping[str, Mapping[str, Any]],
    bytes_per_us: float = math.inf,
) -> dict[str, str]:
    """Why, by the name of the product's node.

    What making codes takes beyond what making floats does counts for the products that read them, in equal
    parts: a conversion, or scales of rows. Where others go on reading the codes, floats would be stored
    beside them: that counts for the products that would read those.

    Args:
        float_us: what every region takes in floats, where that is known.
        rows: of the program with codes, by region; see `program_notes`.
        bytes_per_us: of the GPU's memory.
    """
    readers = Counter(row["reads"] for row in rows.values() if row["codes"])
    made_us = _coding_us(choices, float_us, rows)
    coded_us = {
        region: row["median_us"] + made_us.get(row["reads"], 0.0) / readers[row["reads"]]
        for region, row in rows.items()
        if row["product"] is not None and row["codes"] and row["median_us"] is not None
    }
    left = {region for region, time_us in coded_us.items() if time_us > float_us.get(region, math.inf)}
    while True:  # one that stays may be the reason for another to stay
        stored_us = {region: _beside_us(region, rows, left, bytes_per_us) for region in left}
        kept = {region for region in left if coded_us[region] <= float_us[region] + stored_us[region]}
        if not kept:
            break
        left -= kept
    return {
        rows[region]["product"]: f"slower in {rows[region]['codes']} on this GPU: {coded_us[region]:.1f} us "
        f"against {float_us[region] + stored_us[region]:.1f} us"
        for region in rows
        if region in left
    }


def _beside_us(
    region: str, rows: Mapping[str, Mapping[str, Any]], left: Collection[str], bytes_per_us: float
) -> float:
    """What storing floats for a product takes where its codes are stored anyway, for readers not in `left`.

    In equal parts for those in `left` that read the same.
    """
    buffer = rows[region]["reads"]
    shapes = {name: shape for name, _, shape, *_ in rows[region].get("inputs", ())}
    reading = {name for name, row in rows.items() if buffer in {x[0] for x in row.get("inputs", ())}}
    if shapes.get(buffer) is None or reading <= set(left):
        return 0.0
    sharing = sum(rows[name]["reads"] == buffer for name in left)
    return float(FLOAT_BYTES * math.prod(shapes[buffer]) / bytes_per_us / sharing)


def _coding_us(
    choices: Choices, float_us: Mapping[str, float], rows: Mapping[str, Mapping[str, Any]]
) -> dict[str, float]:
    """By the buffer of codes, what regions that are not in the engine of floats take more than those there.

    Such a region stands for those of the other engine that are named after one of its nodes: a norm with the
    scales of its rows for the norm alone.
    """
    found = {
        name.removeprefix("convert "): choice.median_us or 0.0
        for name, choice in choices.by_region.items()
        if name.startswith("convert ")
    }
    for name, row in rows.items():
        if row.get("formula") == "Rows" and name not in float_us and row["median_us"] is not None:
            instead_us = sum(float_us.get(node, 0.0) for node in row["nodes"])
            extra_us = max(0.0, row["median_us"] - instead_us)
            found |= {buffer: extra_us for buffer, dtype, *_ in row["outputs"] if dtype in CODED_TYPES}
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
    per_token = frozenset(use for use in placement.per_token if use[0] not in reasons)
    placement = replace(placement, uses=uses, per_token=per_token, decisions=decisions)
    return replace(quantized, placement=placement)
