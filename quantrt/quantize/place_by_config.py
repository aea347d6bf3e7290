# SPDX-License-Identifier: Apache-2.0
"""Placement as a configuration wants it: its exclusions, and its quantization level."""

from __future__ import annotations

from collections.abc import Mapping

import onnx_ir as ir

from quantrt.config import QuantizeConfig
from quantrt.quantize.levels import left_in_float
from quantrt.quantize.placement import place
from quantrt.quantize.quantized_model import Placement
from quantrt.quantize.target import Target

__all__ = ["place_by_config"]


def place_by_config(
    graph: ir.Model, target: Target, config: QuantizeConfig, kept_float: Mapping[str, str] | None = None
) -> Placement:
    """Apply a target's rules to a canonical float graph, as far as a configuration allows.

    Args:
        kept_float: names of further nodes that stay float, with the reason.

    Raises:
        UsageError: an exclusion matches no node.
    """
    kept = {**left_in_float(graph.graph, config.quantization_level), **(kept_float or {})}
    return place(graph, target, exclude=config.exclude, exclude_types=config.exclude_types, kept_float=kept)
