# SPDX-License-Identifier: Apache-2.0
"""Quantization levels: how much of a network may run in 8 bits, from convolutions alone to all of it.

    1    convolutions
    2    and the products of feed-forward layers
    2.5  and the projections of attention
    3    and all other linear layers
    4    and the products of attention
    auto everything that a target has rules for

The numbers are those of NVIDIA's diffusion demo (TensorRT, demo/Diffusion, `--quantization-level`), and so is
what every number leaves alone: `quantrt.quantize.patterns.edges`.
"""

from __future__ import annotations

import onnx_ir as ir

from quantrt.config import QUANTIZATION_LEVELS, QuantizeConfig
from quantrt.quantize.patterns.edges import edge_layers
from quantrt.quantize.patterns.roles import Role, roles_of
from quantrt.quantize.quantized_model import Placement
from quantrt.quantize.target import Target
from quantrt.quantize.targets.cuda import CUDA

__all__ = ["ATTENTION_LEVELS", "attention_note", "left_in_float", "why_level_left_all"]

_ADDED = {
    "1": Role.CONVOLUTION,
    "2": Role.FEED_FORWARD,
    "2.5": Role.PROJECTION,
    "3": Role.LINEAR,
    "4": Role.ATTENTION,
}
"""What each level adds to the one before it."""

ATTENTION_LEVEL = "4"
ATTENTION_LEVELS = (ATTENTION_LEVEL, "auto")
"""Those at which attention may be in 8 bits."""


def left_in_float(graph: ir.Graph, level: str) -> dict[str, str]:
    """Names of the nodes that a level leaves in float, with the reason; none for "auto"."""
    if level == "auto":
        return {}
    roles = roles_of(graph)
    allowed = _allowed(level)
    reason = f"left in float by quantization level {level}"
    found = {name: f"{reason}: {role.value}" for name, role in roles.items() if role not in allowed}
    edges = edge_layers(graph, roles)
    return {**{name: f"{reason}: {why}" for name, why in edges.items()}, **found}


def why_level_left_all(graph: ir.Graph, level: str) -> str:
    """Why a level left every node in float: that what it allows is not there, or may not be."""
    roles = roles_of(graph)
    names = [role.value for role in _allowed(level)]
    present = sum(role in _allowed(level) for role in roles.values())
    if not present:
        return f"quantization level {level} is for {', '.join(names)}, and the model has none"
    kept = len(left_in_float(graph, level).keys() & roles.keys())
    return (
        f"quantization level {level} leaves {kept} of {len(roles)} layers in float, and no other can be 8-bit"
    )


def attention_note(
    graph: ir.Graph, config: QuantizeConfig, placement: Placement, target: Target
) -> tuple[str, ...]:
    """What to tell where a level asks for 8-bit attention and the target's rules give it none."""
    if config.quantization_level != ATTENTION_LEVEL:
        return ()
    names = {name for name, role in roles_of(graph).items() if role is Role.ATTENTION}
    if not names or any(row.is_int8 for row in placement.decisions if row.node in names):
        return ()
    if target.name == CUDA.name:
        where = "multiplies codes on compute capability 9.0, without a mask, where that is faster"
        return (f"quantization level {ATTENTION_LEVEL} is for attention too: it {where}",)
    return (
        f"quantization level {ATTENTION_LEVEL} is for attention too, and {target.name} has no 8-bit form of "
        f"it here: its {len(names)} products are in float",
    )


def _allowed(level: str) -> tuple[Role, ...]:
    numbers = [name for name in QUANTIZATION_LEVELS if name != "auto"]
    return tuple(_ADDED[name] for name in numbers[: numbers.index(level) + 1])
