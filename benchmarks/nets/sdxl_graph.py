# SPDX-License-Identifier: Apache-2.0
"""A large network as ONNX in two parts: the graph without its weights, then the weights in a file beside it.

Exporting the UNet of SDXL takes torch minutes, whatever is in its weights; drawing 2.57 billion of them takes
seconds, on a GPU less. So the graph, a few MB, can be made on one machine and filled on another. While it is
made, a weight is one number seen in all of its places: it takes no memory, and tells afterwards which
constant of the graph, transposed or not, is that weight.
"""

__all__ = ["DATA", "export_graph", "write_weights"]

import mmap
from collections.abc import Mapping
from pathlib import Path

import onnx
import onnx_ir as ir
import torch
from torch import nn

DATA = "unet.onnx.data"
"""The file of the weights, in the folder of the graph."""

TRANSPOSED = ".T"
"""Behind the name of a weight that the graph holds transposed."""

FIRST_MARK = 2
"""Weights are numbered from here on: biases and norms, which stay in the graph, are zeros and ones."""


def export_graph(net: nn.Module, feed: Mapping[str, torch.Tensor], path: Path) -> None:
    """Write the graph of a network whose weights are on the "meta" device: a free batch, one output.

    Weights of two axes and more are named after their parameter, and lie in DATA; see `write_weights`.
    """
    marks = _mark_weights(net)
    batch = torch.export.Dim("batch", min=1, max=16)
    program = torch.onnx.export(
        net,
        tuple(feed.values()),
        dynamic_shapes={name: {0: batch} for name in feed},
        input_names=list(feed),
        output_names=["out_sample"],
        dynamo=True,
        verbose=False,
    )
    if program is None:
        raise SystemExit("torch made no ONNX program")
    _name_weights(program.model, marks)
    for node in program.model.graph:
        node.metadata_props.clear()  # stack traces, most of the file
    path.write_bytes(ir.to_proto(program.model).SerializeToString())


def write_weights(net: nn.Module, path: Path) -> None:
    """Write the weights that the graph at `path` lacks, one after the other, from wherever they are."""
    parameters = dict(net.named_parameters())
    with path.with_name(DATA).open("wb") as file:
        for tensor in onnx.load(path, load_external_data=False).graph.initializer:
            if tensor.data_location != onnx.TensorProto.EXTERNAL:
                continue
            place = {entry.key: entry.value for entry in tensor.external_data}
            weight = parameters[tensor.name.removesuffix(TRANSPOSED)].detach()
            weight = weight.T if tensor.name.endswith(TRANSPOSED) else weight
            file.seek(int(place["offset"]))
            file.write(weight.contiguous().cpu().numpy().data)


def _mark_weights(net: nn.Module) -> dict[int, tuple[str, tuple[int, ...]]]:
    """Put a number of its own in the place of every weight; the weights' names and shapes by number.

    What has one axis gets its values: a norm's weight is 1, all else 0.
    """
    marks: dict[int, tuple[str, tuple[int, ...]]] = {}
    for name, module in net.named_modules():
        for key, parameter in list(module.named_parameters(recurse=False)):
            if parameter.ndim > 1:
                number = len(marks) + FIRST_MARK
                marks[number] = (f"{name}.{key}", tuple(parameter.shape))
                value = torch.tensor(float(number)).expand(parameter.shape)
            else:
                value = torch.full(parameter.shape, float("norm" in name and key == "weight"))
            setattr(module, key, nn.Parameter(value, requires_grad=False))
    return marks


def _name_weights(model: ir.Model, marks: Mapping[int, tuple[str, tuple[int, ...]]]) -> None:
    """Turn the constants that are marked into weights in DATA."""
    end, missing = 0, set(marks)
    for value in list(model.graph.initializers.values()):
        number = _mark_of(value)
        name, shape = marks.get(number, ("", ()))
        tensor, found = value.const_value, value.shape
        if tensor is None or found is None or tuple(found) not in (shape, shape[::-1]) or not name:
            continue
        # torch folds the Transpose of a linear layer's weight, and keeps the names of all others.
        is_transposed = value.name != name
        value.name = name + TRANSPOSED * is_transposed
        value.const_value = ir.ExternalTensor(
            DATA, end, tensor.nbytes, ir.DataType.FLOAT, shape=found, name=value.name
        )
        end += -(-tensor.nbytes // mmap.PAGESIZE) * mmap.PAGESIZE
        missing.discard(number)
    if missing:
        raise SystemExit(f"the graph lacks the weight '{marks[min(missing)][0]}'")


def _mark_of(value: ir.Value) -> int:
    """The number that a constant holds in its first place; 0 where that is none."""
    tensor = value.const_value
    if tensor is None or tensor.dtype != ir.DataType.FLOAT or len(tensor.shape) < 2:
        return 0
    first = float(tensor.numpy().flat[0])
    return int(first) if first.is_integer() else 0
