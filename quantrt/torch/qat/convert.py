# SPDX-License-Identifier: Apache-2.0
"""The ONNX Q/DQ model of a prepared module: its weights and scales as they are now, in codes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx_ir as ir
from torch import nn

from quantrt.errors import InternalError, ModelError, UsageError
from quantrt.ir.clone import clone
from quantrt.ir.edit import constant_of
from quantrt.model.file.save import save_model
from quantrt.model.load import make_model
from quantrt.model.model import Model
from quantrt.quantize.qdq.write import write
from quantrt.quantize.quantized_model import QuantizedModel, Use
from quantrt.quantize.scales.qparams import QParams, QuantizedTensor, bias_qparams, quantize_array
from quantrt.torch.qat.prepared import PreparedModel

__all__ = ["convert", "quantized_model"]


def convert(prepared: nn.Module, path: str | Path | None = None) -> ir.Model:
    """The Q/DQ model whose codes are those of the prepared module's forward in evaluation mode.

    Args:
        prepared: what `prepare` gave; of DistributedDataParallel its `module`, of torch.compile the module
            that was compiled.
        path: where to write it too.

    Raises:
        UsageError: another module.
        ModelError: a weight or scale is not finite, or a bias outgrew its int32 codes.
        DeviceError: the path cannot be written.
    """
    if not isinstance(prepared, PreparedModel):
        raise UsageError(
            "cannot convert this module",
            got=type(prepared).__name__,
            expected="what prepare() gave",
            hint="`.module` of DistributedDataParallel, or the module that torch.compile was called with",
        )
    model = write(quantized_model(prepared))
    if path is not None:
        save_model(model, Path(path))
    return model


def quantized_model(prepared: PreparedModel) -> QuantizedModel:
    """The float graph with the trained weights, and the trained grids on its edges.

    Raises:
        ModelError: a weight or scale is not finite, or a bias outgrew its int32 codes.
    """
    recipe = prepared.recipe
    model = _trained(prepared)
    nodes = {node.name or "": node for node in model.graph.graph}
    modules = {name: module.qparams() for name, module in prepared.quantizers()}
    for name, grid in modules.items():
        _check_finite(f"the scale of '{name}'", grid.scale)
    activations = {value: modules[name] for value, name in recipe.activations.items()}
    weights: dict[Use, QuantizedTensor] = {}
    for use, (name, is_transposed) in recipe.weights.items():
        array, grid = _operand(nodes, use), modules[name]
        axis = 1 - grid.axis if is_transposed and grid.axis is not None else grid.axis
        grid = QParams(grid.scale, grid.zero_point, grid.dtype, axis, grid.qmin, grid.qmax)
        weights[use] = QuantizedTensor(quantize_array(array, grid), grid)
    biases: dict[Use, QuantizedTensor] = {}
    for use in recipe.biases:
        read, weight = recipe.placement.biases[use]
        grid = bias_qparams(activations[recipe.placement.uses[read]], weights[weight].qparams)
        biases[use] = _bias(use, _operand(nodes, use), grid)
    return QuantizedModel(
        model,
        model.graph,
        recipe.target,
        recipe.placement,
        activations,
        weights,
        biases,
        notes=prepared.notes,
    )


def _trained(prepared: PreparedModel) -> Model:
    """The canonical float model with the parameters as they are now."""
    graph = clone(prepared.recipe.onnx)
    state = prepared.network.state_dict()
    for name in prepared.recipe.parameters:
        array = state[name].detach().cpu().numpy()
        _check_finite(f"'{name}'", array)
        graph.graph.initializers[name].const_value = ir.tensor(array.copy(), name=name)
    return make_model(graph)


def _check_finite(what: str, array: np.ndarray) -> None:
    if array.dtype.kind == "f" and not np.isfinite(array).all():
        raise ModelError(
            f"cannot convert: {what} has values that are not finite", hint="a lower learning rate"
        )


def _operand(nodes: dict[str, ir.Node], use: Use) -> np.ndarray:
    array = constant_of(nodes[use[0]].inputs[use[1]]) if use[0] in nodes else None
    if array is None:
        raise InternalError(f"input {use[1]} of '{use[0]}' was a constant before training, and is none now")
    return array


def _bias(use: Use, bias: np.ndarray, grid: QParams) -> QuantizedTensor:
    row = bias.reshape(-1)
    if not np.all(np.abs(row.astype(np.float64)) < grid.scale.astype(np.float64) * grid.qmax):
        raise ModelError(
            f"cannot convert: the bias of '{use[0]}' does not fit int32 codes on the trained scales",
            hint="learn_scales=False",
        )
    return QuantizedTensor(quantize_array(row, grid), grid)
