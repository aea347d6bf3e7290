# SPDX-License-Identifier: Apache-2.0
"""Tables of codes that ONNX Runtime gathers rows of become tables of floats, for want of kernels for them.

    GatherBlockQuantized(codes, indices, scales, zero_points)      Gather(floats, indices)

Codes are bytes, or two in a byte with the first in the low half, and in blocks along the last axis; without
zero points theirs is the middle (onnxruntime, docs/ContribOperators.md). Other forms stay.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx_ir as ir

from quantrt.ir.edit import add_constant, constant_of, int_attribute, take_place

__all__ = ["decode_tables"]

Array = np.ndarray[Any, Any]

DOMAIN = "com.microsoft"


def decode_tables(graph: ir.Model) -> int:
    """Replace each such node of the main graph that reads constants; how many."""
    count = 0
    made: dict[ir.Value | None, ir.Value] = {}
    for node in list(graph.graph):
        if node.op_type != "GatherBlockQuantized" or node.domain != DOMAIN:
            continue
        floats = _floats(node)
        if floats is None:
            continue
        codes = node.inputs[0]
        if codes not in made:
            made[codes] = add_constant(graph, f"{'' if codes is None else codes.name}_decoded", floats)
        gather = ir.node("Gather", [made[codes], node.inputs[1]], attributes={"axis": 0}, name=node.name)
        gather.metadata_props.update(node.metadata_props)
        take_place(graph, node, [gather], gather.outputs[0])
        count += 1
    return count


def _floats(node: ir.Node) -> Array | None:
    """The table that a node gathers rows of; None where its form is another."""
    codes, scales = constant_of(node.inputs[0]), constant_of(node.inputs[2])
    zeros = constant_of(node.inputs[3]) if len(node.inputs) > 3 else None
    bits, block = int_attribute(node, "bits", 4), int_attribute(node, "block_size", 128)
    is_given = len(node.inputs) > 3 and node.inputs[3] is not None
    if codes is None or scales is None or (zeros is None and is_given) or bits not in (4, 8):
        return None
    axes = int_attribute(node, "gather_axis", 0), int_attribute(node, "quantize_axis", 1)
    is_known = codes.dtype == np.uint8 and codes.ndim == 2 and axes in ((0, 1), (0, -1))
    if not is_known or (zeros is not None and zeros.dtype != np.uint8):
        return None
    whole = _unpacked(codes, bits).astype(np.float32)
    if block < 1 or scales.shape != (len(whole), -(-whole.shape[1] // block)):  # before they are spread
        return None
    points = np.full(scales.shape, 1 << (bits - 1)) if zeros is None else _unpacked(zeros, bits)
    spread = [
        np.repeat(array[:, : scales.shape[1]], block, axis=1)[:, : whole.shape[1]]
        for array in (points, scales)
    ]
    if any(array.shape != whole.shape for array in spread):
        return None
    return np.asarray(((whole - spread[0].astype(np.float32)) * spread[1]).astype(scales.dtype))


def _unpacked(array: Array, bits: int) -> Array:
    """Codes of rows of bytes, one by one."""
    if bits == 8:
        return array
    return np.stack([array & 0xF, array >> 4], axis=-1).reshape(len(array), -1)
