# SPDX-License-Identifier: Apache-2.0
"""Run a whole ONNX graph in torch, node by node, on any device: slow, complete, and right by construction."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import onnx_ir as ir
import torch

from quantrt.errors import DataError, DeviceError, ModelError
from quantrt.operators.bind import bind_attributes, label, load_tensor
from quantrt.operators.block import Block, Scope, Step, describe, run_block
from quantrt.operators.element_types import from_numpy, onnx_type
from quantrt.operators.expand import expand_functions
from quantrt.operators.operator import Context, Value
from quantrt.operators.place import Placement
from quantrt.operators.table import find_operator

__all__ = ["TorchGraph", "open_device"]

_CONTRIB = "com.microsoft"
"""The domain of what ONNX Runtime's optimizer and quantizer put in the place of the standard's operators."""


class TorchGraph:
    """A model whose nodes torch computes on one device. Its weights are loaded once; runs do not share state.

    Args:
        graph: the model; it is not changed.
        device: any torch device: "cpu", "cuda", "cuda:1"; one that was opened before is not tried again.
        numbers_on_host: constants and inputs stay where they are until a node on the device computes with
            them, so that shapes and axes are never read back (see quantrt/operators/place.py). Inputs may
            then be of another float type than declared.

    Raises:
        ModelError: an operator, attribute or type that is not supported; names the node.
        DeviceError: torch does not have the device.
    """

    def __init__(
        self, graph: ir.Model, device: str | torch.device = "cpu", *, numbers_on_host: bool = False
    ) -> None:
        self.device = open_device(device) if isinstance(device, str) else device
        self._placement = Placement(self.device) if numbers_on_host else None
        self._home = torch.device("cpu") if numbers_on_host else self.device
        expanded = expand_functions(graph)
        self._opset = expanded.opset_imports.get("", expanded.opset_imports.get("ai.onnx", 1))
        self._constants: Scope = {}
        self._main = self._compile(expanded.graph)
        self.inputs = tuple(value.name or "" for value in self._main.inputs if value not in self._constants)
        self.outputs = tuple(value.name or "" for value in self._main.outputs)

    def run(self, inputs: Mapping[str, Value]) -> dict[str, Value]:
        """The outputs by name, on the device: tensors, or lists of them for sequences.

        Args:
            inputs: numpy arrays or tensors by name; lists of them for sequences, None for an empty optional;
                tensors alone with numbers_on_host.

        Raises:
            DataError: an input is missing, unknown or of another type or shape than declared.
            ModelError: a node cannot be computed; names it.
            DeviceError: the device is out of memory.
        """
        with torch.inference_mode():
            return self.run_in(inputs)

    def run_in(self, inputs: Mapping[str, Value]) -> dict[str, Value]:
        """`run` in the caller's gradient mode: tensors of its own stay usable outside inference mode."""
        scope: Scope = dict(self._constants)
        self._feed(scope, inputs)
        # float32 means float32: cuDNN would otherwise round the factors of convolutions to ten bits.
        flags = torch.backends.cudnn.flags(enabled=True, allow_tf32=False)
        with flags:
            values = run_block(self._main, scope, (), self._home)
        return dict(zip(self.outputs, values, strict=True))

    def _feed(self, scope: Scope, inputs: Mapping[str, Value]) -> None:
        declared = {value.name or "": value for value in self._main.inputs}
        unknown = [name for name in inputs if name not in declared]
        missing = [name for name in self.inputs if name not in inputs]
        if unknown or missing:
            raise DataError(
                "the inputs are not those of the model",
                got=", ".join(inputs) or "none",
                expected=", ".join(self.inputs),
            )
        for name, given in inputs.items():
            if self._placement is not None:
                scope[declared[name]] = given
                continue
            value = _on_device(given, self.device)
            _check_input(declared[name], value)
            scope[declared[name]] = value

    def _compile(self, graph: ir.Graph) -> Block:
        for value in graph.initializers.values():
            if value.const_value is not None:
                constant = load_tensor(value.const_value, self._home)
                self._constants[value] = constant
                if self._placement is not None:
                    self._placement.add_constant(constant)
        nodes = list(graph)
        last_reads = _last_reads(graph, nodes)
        steps = [self._step(node, last_reads.get(position, ())) for position, node in enumerate(nodes)]
        return Block(tuple(graph.inputs), tuple(graph.outputs), tuple(steps))

    def _step(self, node: ir.Node, frees: Sequence[ir.Value]) -> Step:
        if node.domain not in ("", "ai.onnx"):
            raise ModelError(
                f"no torch implementation for {label(node)}",
                got=f"an operator of domain '{node.domain}'",
                expected="operators of the default ONNX domain",
                hint="the model as it was before ONNX Runtime optimized it, or --device cpu"
                if node.domain == _CONTRIB
                else "--device cpu, where ONNX Runtime has it",
            )
        operator = find_operator(node.op_type, self._opset, node=node.name or "?")
        bodies = {
            name: self._compile(attribute.as_graph())
            for name, attribute in node.attributes.items()
            if attribute.type == ir.AttributeType.GRAPH
        }
        outputs = tuple(value if value.name else None for value in node.outputs)
        named = [place for place, value in enumerate(outputs) if value is not None]
        device = self._home if node.op_type == "Constant" else self.device
        context = Context(device, named[-1] + 1 if named else 0)
        attributes = bind_attributes(node, operator, self._home)
        inputs = tuple(node.inputs)
        return Step(
            node, operator, attributes, bodies, inputs, outputs, tuple(frees), context, self._placement
        )


def _last_reads(graph: ir.Graph, nodes: Sequence[ir.Node]) -> dict[int, list[ir.Value]]:
    """By position of a node: the graph's own values that it is the last to read, or that nothing reads."""
    last: dict[ir.Value, int] = dict.fromkeys(graph.inputs, -1)
    for position, node in enumerate(nodes):
        for value in _reads(node):
            if value in last:
                last[value] = position
        for value in node.outputs:
            if value.name:
                last[value] = position
    kept = {*graph.outputs, *graph.initializers.values()}
    found: dict[int, list[ir.Value]] = {}
    for value, position in last.items():
        if position >= 0 and value not in kept:
            found.setdefault(position, []).append(value)
    return found


def _reads(node: ir.Node) -> list[ir.Value]:
    """The values a node reads, those that its subgraphs capture included."""
    found = [value for value in node.inputs if value is not None]
    for attribute in node.attributes.values():
        if attribute.type == ir.AttributeType.GRAPH:
            body = attribute.as_graph()
            found += [value for inner in body for value in _reads(inner)]
            found += list(body.outputs)
    return found


def _on_device(value: Value, device: torch.device) -> Value:
    if isinstance(value, np.ndarray | np.generic):
        return from_numpy(np.asarray(value), device)
    if isinstance(value, torch.Tensor):
        return value.to(device)
    return [_on_device(item, device) for item in value] if isinstance(value, list | tuple) else value


def _check_input(declared: ir.Value, value: Value) -> None:
    """Hold a tensor against its declared type and fixed sizes."""
    if not isinstance(value, torch.Tensor) or not isinstance(declared.type, ir.TensorType):
        return
    sizes = None if declared.shape is None else list(declared.shape)
    fits = sizes is None or (
        len(sizes) == value.dim()
        and all(want == have for want, have in zip(sizes, value.shape, strict=True) if isinstance(want, int))
    )
    if onnx_type(value.dtype) != declared.dtype or not fits:
        wanted = f"{ir.DataType(declared.type.dtype).name.lower()} {sizes}"
        raise DataError(
            f"input '{declared.name}' is not what the model declares", got=describe(value), expected=wanted
        )


def open_device(name: str) -> torch.device:
    """The torch device of a name.

    Raises:
        DeviceError: there is none.
    """
    try:
        device = torch.device(name)
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:
        raise DeviceError(f"torch has no device '{name}'", got=str(error).partition("\n")[0]) from error
    return device
