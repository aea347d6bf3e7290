# SPDX-License-Identifier: Apache-2.0
"""Values that fp16 is too narrow for, and the squares in norms: only a GPU computes in fp16."""

from __future__ import annotations

from collections.abc import Iterator

import onnx_ir as ir

from quantrt.ir.edit import is_operator
from quantrt.trouble.finding import HANDLED, Finding
from quantrt.trouble.scene import Scene

__all__ = ["find_overflows"]

FLOAT16_MAX = 65504.0

HEADROOM_RATIO = 8.0
"""Other inputs may reach so many times what samples reach."""

NORMS = ("LayerNormalization", "RMSNormalization", "SkipLayerNormalization", "GroupNormalization")

ADVICE = (
    "nothing to do here: such values are stored, and squares are added up, in fp32, which costs bytes; "
    "--bf16 has the range, and less precision"
)


def find_overflows(scene: Scene) -> Iterator[Finding]:
    """One finding for values near the largest number of fp16, one for norms whose squares pass it."""
    if not scene.is_gpu or not scene.extremes:
        return
    wide: list[tuple[float, ir.Node, str]] = []
    squared: list[tuple[float, ir.Node, str]] = []
    for node in scene.nodes:
        for value in node.outputs:
            lo, hi = scene.extremes.get(value.name or "", (0.0, 0.0))
            if hi > 0 and max(-lo, hi) > FLOAT16_MAX / HEADROOM_RATIO:  # what is never above 0 is a mask
                wide.append((max(-lo, hi), node, value.name or ""))
        source = node.inputs[0] if is_operator(node, *NORMS) else None
        if source is not None:
            peak = max((abs(end) for end in scene.extremes.get(source.name or "", (0.0,))), default=0.0)
            if peak * peak > FLOAT16_MAX:
                squared.append((peak, node, source.name or ""))
    if wide:
        peak, node, value_name = max(wide, key=lambda row: row[0])
        yield Finding(
            "fp16 overflow",
            HANDLED,
            tuple(dict.fromkeys(row[1].name or "" for row in wide)),
            tuple(row[2] for row in wide),
            f"'{value_name}' reaches {peak:.3g}; the largest number of fp16 is 65504",
            "beyond it a value is infinite, and NaN soon after",
            ADVICE,
        )
    if squared:
        peak, node, value_name = max(squared, key=lambda row: row[0])
        yield Finding(
            "fp16 overflow",
            HANDLED,
            tuple(row[1].name or "" for row in squared),
            tuple(dict.fromkeys(row[2] for row in squared)),
            f"'{node.name}' squares values up to {peak:.3g}: {peak * peak:.3g}",
            "squares that are added up in fp16 are infinite, and the norm is 0",
            ADVICE,
        )
