# SPDX-License-Identifier: Apache-2.0
"""The ONNX nodes of one step, as the runners of nodes, views and host values run them.

options: {"nodes": names, "constants": names of the step's weights, absent without any}. A buffer stands for
the value whose name it bears; where it does not, "values" and "results" name those of inputs and outputs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import onnx_ir as ir
import torch

from quantrt.errors import DataError, DeviceError, ModelError
from quantrt.operators.extract import extract_nodes
from quantrt.operators.interpret import TorchGraph
from quantrt.plan.program import Step, type_of_codes
from quantrt.runtime.cuda.runner import Assets

__all__ = ["NodeGraph"]


class NodeGraph:
    """Nodes of a program that run as one step.

    Attributes:
        op_types: of the nodes, in their order.
        reads_codes: for every input, the type of its codes where its buffer holds those of a float value.

    Args:
        device: where tensors are computed with; numbers stay in host memory.

    Raises:
        ModelError: the program lacks the nodes, or torch cannot run one.
    """

    def __init__(self, step: Step, assets: Assets, device: torch.device) -> None:
        if not isinstance(assets.nodes, ir.Model):
            raise ModelError(f"region '{step.region}' runs nodes of a program that has none")
        names = step.options["nodes"]
        self._region = step.region
        self._values = tuple(step.options.get("values", (_value(name) for name in step.inputs)))
        self._results = tuple(step.options.get("results", (_value(name) for name in step.outputs)))
        constants = tuple(step.options.get("constants", ()))
        if len(constants) != len(step.weights):
            raise ModelError(
                f"region '{step.region}' does not name its weights",
                got=f"{len(constants)} names",
                expected=f"{len(step.weights)}",
            )
        self._constants = {
            name: assets.weights[key] for name, key in zip(constants, step.weights, strict=True)
        }
        self.reads_codes = tuple(map(type_of_codes, step.inputs))
        inputs = [name for name in (*self._values, *constants) if name]
        results = [name for name in self._results if name]
        part = extract_nodes(assets.nodes, names, list(dict.fromkeys(inputs)), results)
        self.op_types = tuple(node.op_type for node in part.graph)
        self._graph = TorchGraph(part, device, numbers_on_host=True)

    def widen_constants(self, dtype: torch.dtype) -> None:
        """Bring those constants that are weights, where they are floats, to another type once and for all."""
        self._constants = {
            name: value.to(dtype) if value.is_floating_point() else value
            for name, value in self._constants.items()
        }

    def run(self, inputs: Sequence[Any]) -> list[Any]:
        """The step's outputs in order, None for an absent one; they may share memory with the inputs.

        Raises:
            DataError: shapes or values that the nodes cannot take.
            DeviceError: out of memory.
        """
        given = dict(self._constants)
        given.update((name, value) for name, value in zip(self._values, inputs, strict=True) if name)
        try:
            found = self._graph.run_in(given)
        except DeviceError as error:
            message = f"region '{self._region}': {error.message}"
            raise DeviceError(message, got=error.got, hint=error.hint) from error
        except ModelError as error:
            raise DataError(
                f"region '{self._region}': {error.message}", got=error.got, expected=error.expected
            ) from error
        return [found[name] if name else None for name in self._results]


def _value(buffer: str) -> str:
    return buffer.rpartition("#")[0] if type_of_codes(buffer) else buffer
