# SPDX-License-Identifier: Apache-2.0
"""Codes beside 16-bit floats are left out where nearly nothing is in floats: they would be the same codes.

A convolutional network in int8 is codes from its first convolution to its last, but for an average. Beside
bf16 that average reads half the bytes, behind a conversion. What layers read tells it: of the elements that
all layers of int8 read, layers in floats behind those of the inputs read next to none there, and several
times as many in networks with padded shortcuts, or with gates.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from quantrt.tactics.candidate import Candidate, Spec

if TYPE_CHECKING:
    from quantrt.runtime.openvino.executor import OpenVinoExecutor

__all__ = ["codes_beside_fp32", "why_left_out"]

FEW_RATIO = 0.05
"""Of the elements that all layers read: half of the bytes of so few is less than what a search goes by (see
REGRET_RATIO of quantrt.tactics.timing)."""

CODES = ("i8", "u8")

READERS = (
    "Concatenation", "Convert", "Eltwise", "FakeQuantize", "Math", "Pad", "Pooling", "Reduce", "Reorder",
    "Reshape", "Softmax", "Split", "StridedSlice", "Subgraph", "Transpose",
)  # fmt: skip
"""Types of layers that take as long as they read; products in floats may take any time."""

INPUT = "Input"
NO_LAYERS = (INPUT, "Const", "Output")
"""Of a model that was compiled, what computes nothing."""


def codes_beside_fp32(spec: Spec) -> str:
    """The name of the candidate with the same codes, whose other layers are in FP32."""
    return replace(spec, float_precision="fp32").name


def why_left_out(spec: Spec, opened: Mapping[str, Candidate]) -> str | None:
    """Why codes beside 16-bit floats need not be opened; None where they may gain.

    Args:
        opened: candidates by name, which have run the inputs that are timed.
    """
    name = codes_beside_fp32(spec)
    if spec.library != "openvino" or not spec.has_codes or spec.name == name or name not in opened:
        return None
    from quantrt.runtime.openvino.executor import OpenVinoExecutor  # heavy

    executor = opened[name].executor
    ratio = _float_ratio(executor) if isinstance(executor, OpenVinoExecutor) else None
    if ratio is None or ratio > FEW_RATIO:
        return None
    return f"{ratio:.1%} of what {name} reads is in floats: {spec.float_precision} has nothing to gain there"


def _float_ratio(executor: OpenVinoExecutor) -> float | None:
    """The part of the elements that layers read which floats read; None where that tells no time."""
    from quantrt.runtime.openvino.watch import constant_names, layer_type

    shapes = next(iter(executor.compiled_shapes), None)
    if shapes is None:
        return None
    model = executor.runtime_model(shapes)
    layers = [node for node in model.get_ordered_ops() if layer_type(node) not in NO_LAYERS]
    if any(layer_type(node) not in READERS and not _is_in_codes(node) for node in layers):
        return None
    fixed = constant_names(model)
    total, floats = 0, 0
    for node in layers:
        sources = [port.get_source_output() for port in node.inputs()]
        read = [source for source in sources if source.get_node().get_name() not in fixed]
        count = sum(math.prod(source.get_partial_shape().to_shape()) for source in read)
        total += count
        if not _is_in_codes(node) and all(layer_type(source.get_node()) != INPUT for source in read):
            floats += count  # what is given to a model is in floats either way
    return floats / total if total else None


def _is_in_codes(node: Any) -> bool:
    """Whether a layer computes in codes, whatever it makes."""
    from quantrt.runtime.openvino.watch import text_of

    return text_of(node, "primitiveType").endswith("_I8") or text_of(node, "runtimePrecision") in CODES
