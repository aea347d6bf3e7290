# SPDX-License-Identifier: Apache-2.0
"""A torch module as two graphs with the same names: one that trains, and the ONNX model of it.

`torch.onnx.export` decomposes what ONNX has no operator for; the graph after that is the one that is trained,
so that a value of the ONNX model and the node that makes it have one name.
"""

from __future__ import annotations

import copy
import importlib.util
import logging
import re
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import onnx_ir as ir
import torch
from torch import fx, nn

from quantrt.errors import DeviceError, InternalError, ModelError, first_line
from quantrt.torch.qat.dropouts import restore_dropouts, take_dropouts
from quantrt.torch.qat.fold_norms import CHANNEL_AXIS, fold_norms
from quantrt.torch.qat.spell_attention import spell_attention

__all__ = ["Traced", "owner_of", "trace"]

_OWNER_KEY = "pkg.torch.onnx.fx_node"
"""Where the exporter notes which node of the traced graph an ONNX node is of."""
_OWNER = re.compile(r"^%(\w+)")

_TRANSPOSED = {
    1: torch.ops.aten.conv_transpose1d.default,
    2: torch.ops.aten.conv_transpose2d.input,
    3: torch.ops.aten.conv_transpose3d.input,
}
"""By the number of axes behind the channels."""

REGISTRY = "torch.onnx._internal.exporter._registration"
"""Of torch's loggers the one that warns of every operator of torchvision where that is not installed."""


@dataclass(frozen=True)
class Traced:
    """One module, traced.

    Attributes:
        network: trains; parameters under the names they have in the module.
        onnx: the same in ONNX, not canonical; each initializer has the name of its parameter.
        folded: batch normalizations that are part of a weight now.
    """

    network: fx.GraphModule
    onnx: ir.Model
    folded: int


def trace(model: nn.Module, example_inputs: tuple[Any, ...], dynamic_shapes: Any) -> Traced:
    """Trace a module in evaluation mode; its batch normalizations are folded, its dropouts stay.

    Args:
        example_inputs: of at least two samples each, or torch takes the number of samples for a constant.
        dynamic_shapes: as torch.export takes them.

    Raises:
        DeviceError: onnxscript, which torch.onnx needs, is not installed.
        ModelError: torch cannot export the module, or knows no ONNX operator for a part of it.
    """
    if importlib.util.find_spec("onnxscript") is None:
        raise DeviceError("onnxscript is not installed", hint="`pip install 'quantrt[qat]'`")
    module = copy.deepcopy(model).eval()
    with warnings.catch_warnings():
        # Of torch's own code: deprecated pytree calls.
        warnings.filterwarnings("ignore", category=FutureWarning)
        warnings.filterwarnings("ignore", category=DeprecationWarning)
        exported = _export(module, example_inputs, dynamic_shapes)
        plain = exported.module(check_guards=False)
        folded = fold_norms(plain)
        if spell_attention(plain) or folded:
            exported = _export(fx.GraphModule(plain, plain.graph), example_inputs, dynamic_shapes)
        dropouts = take_dropouts(exported.graph)
        program = _to_onnx(exported)
        plain = program.exported_program.module(check_guards=False)
    network = fx.GraphModule(plain, plain.graph)
    restore_dropouts(network, dropouts)
    _name_transposed(network)
    _own_weights(program.model)
    _drop_zero_biases(program.model, network.graph)
    return Traced(network, program.model, folded)


def _export(module: nn.Module, example_inputs: tuple[Any, ...], dynamic_shapes: Any) -> Any:
    try:
        with torch.no_grad():
            return torch.export.export(module, example_inputs, dynamic_shapes=dynamic_shapes)
    except (RuntimeError, ValueError, TypeError) as error:  # torch.export's errors are of these
        raise ModelError(
            f"torch cannot export {type(module).__name__}",
            got=first_line(error),
            hint="a forward without branches on values; dynamic_shapes for inputs of other shapes",
        ) from error


def _to_onnx(exported: Any) -> Any:
    try:
        with _quiet(logging.getLogger(REGISTRY)):
            program = torch.onnx.export(exported, (), dynamo=True, optimize=False, verbose=False)
    except torch.onnx.OnnxExporterError as error:
        raise ModelError("torch cannot write the module as ONNX", got=first_line(error)) from error
    if program is None:
        raise InternalError("torch.onnx.export returned no model")
    return program


@contextmanager
def _quiet(logger: logging.Logger) -> Iterator[None]:
    """Within, a logger tells of errors alone."""
    before = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(before)


def _own_weights(model: ir.Model) -> None:
    """Copy the initializers, which otherwise follow the parameters they were made from."""
    for name, value in model.graph.initializers.items():
        if value.const_value is not None:
            value.const_value = ir.tensor(value.const_value.numpy().copy(), name=name)


def owner_of(node: ir.Node, traced: Mapping[str, fx.Node]) -> fx.Node | None:
    """The node of the traced module that an ONNX node is of; None where it is of no single one.

    Args:
        traced: nodes by name.
    """
    match = _OWNER.match(node.metadata_props.get(_OWNER_KEY, ""))
    return traced.get(match.group(1)) if match else None


def _name_transposed(network: fx.GraphModule) -> None:
    """Transposed convolutions by an operator of their own again: `torch.autocast` on a CPU knows no other."""
    for node in network.graph.nodes:
        if node.target is not torch.ops.aten.convolution.default or not node.args[6]:
            continue
        x, weight, bias, stride, padding, dilation, _, output_padding, groups = node.args
        node.target = _TRANSPOSED[len(stride)]
        node.args = (x, weight, bias, stride, padding, output_padding, groups, dilation)
    network.recompile()


def _drop_zero_biases(model: ir.Model, graph: fx.Graph) -> None:
    """Take the bias from convolutions that have none in torch: torch.onnx computes zeros for them."""
    traced = {node.name: node for node in graph.nodes}
    for node in model.graph:
        owner = owner_of(node, traced) if node.op_type == "Conv" and len(node.inputs) == 3 else None
        if owner is not None and owner.target in CHANNEL_AXIS and not any(owner.args[2:3]):
            node.resize_inputs(2)
