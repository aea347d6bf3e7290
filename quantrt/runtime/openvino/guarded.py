# SPDX-License-Identifier: Apache-2.0
"""An OpenVINO model that another process compiles first, where it is of a kind that OpenVINO crashes on.

OpenVINO 2026.4 segfaults, in FP32 as in int8, where softmax attention is added to its residual without a
product between: P V goes, at most moved, into an Add with another activation. Trained transformers project it
first, so that they cost no process.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any

import openvino

from quantrt.errors import ModelError
from quantrt.plan.plan import ExecOptions, LibraryModel
from quantrt.runtime.openvino.executor import OWN_SHAPES, CompiledVariant, OpenVinoExecutor
from quantrt.runtime.openvino.first_run import how_it_crashes
from quantrt.runtime.openvino.ports import Shapes, shapes_text

__all__ = ["GuardedOpenVino", "may_crash"]

_MOVES = ("Transpose", "Reshape", "Squeeze", "Unsqueeze")
_QUANTIZES = ("FakeQuantize", "Convert", "Subtract", "Multiply")
"""What QuantizeLinear and DequantizeLinear become."""

_MOVING = (*_MOVES, *_QUANTIZES)
_MAX_MOVES = 16


class GuardedOpenVino(OpenVinoExecutor):
    """What engines run in; as fast as an OpenVinoExecutor once it has compiled."""

    def __init__(
        self,
        model: LibraryModel,
        options: ExecOptions,
        *,
        output_names: Sequence[str] | None = None,
        properties: Mapping[str, Any] | None = None,
        own_shapes: int = OWN_SHAPES,
    ) -> None:
        self._source = model, options
        super().__init__(
            model, options, output_names=output_names, properties=properties, own_shapes=own_shapes
        )

    def _compile(self, shapes: Shapes | None, arrived: Shapes) -> CompiledVariant:
        """As there, after another process has lived through it.

        Raises:
            ModelError: that process died.
        """
        if self._may_crash:
            model, options = self._source
            died = how_it_crashes(model, options, arrived, own_shapes=0 if shapes is None else 1)
            if died is not None:
                raise ModelError(
                    f"OpenVINO crashed while it compiled the model: {died}",
                    got=f"input shapes {shapes_text(arrived)}",
                    hint="`quantrt build MODEL.onnx --library onnxruntime`",
                )
        return super()._compile(shapes, arrived)

    @cached_property
    def _may_crash(self) -> bool:
        return may_crash(self._model)


def may_crash(model: openvino.Model) -> bool:
    """Whether a model is of a kind that OpenVINO was seen to crash on."""
    products = (node for node in model.get_ordered_ops() if node.get_type_name() == "MatMul")
    return any(_is_summed(node) for node in products if _comes_from_softmax(node))


def _comes_from_softmax(product: Any) -> bool:
    """Whether a product is the one behind the Softmax of attention."""
    for value in product.input_values():
        node = value.get_node()
        for _ in range(_MAX_MOVES):
            if node.get_type_name() == "Softmax":
                return True
            if node.get_type_name() not in _MOVING:
                break
            node = node.input_value(0).get_node()
    return False


def _is_summed(product: Any) -> bool:
    """Whether an Add with another activation reads the product, directly or moved."""
    frontier = [product]
    for _ in range(_MAX_MOVES):
        readers = [reader for node in frontier for reader in _readers(node)]
        for node, index in readers:
            if node.get_type_name() == "Add" and not _is_constant(node.input_value(1 - index).get_node()):
                return True
        frontier = [node for node, _ in readers if node.get_type_name() in _MOVING]
    return False


def _readers(node: Any) -> Iterator[tuple[Any, int]]:
    """Nodes that read a node's outputs, and as which of their inputs."""
    for output in node.outputs():
        for port in output.get_target_inputs():
            yield port.get_node(), port.get_index()


def _is_constant(node: Any) -> bool:
    """Whether a value comes from weights alone."""
    for _ in range(_MAX_MOVES):
        if node.get_type_name() == "Constant":
            return True
        if node.get_type_name() not in _MOVING:
            return False
        node = node.input_value(0).get_node()
    return False
