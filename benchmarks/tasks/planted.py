# SPDX-License-Identifier: Apache-2.0
"""Models made to break under int8, which compute in floats what the models they are made of compute.

Some channels of an activation are multiplied, and the weights that read them are divided: floats do not mind,
8-bit codes with one scale for all channels lose the others. Trained models come with such channels:
transformers in their residual streams (Dettmers et al. 2022, "LLM.int8()"), depthwise networks in the ranges
of their channels (Nagel et al. 2019, "Data-Free Quantization").
"""

__all__ = ["plant_residual_ranges", "plant_stream_outliers"]

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import onnx
from onnx import numpy_helper

Floats = npt.NDArray[np.float32]


def plant_stream_outliers(
    model: onnx.ModelProto, blocks: Sequence[int], *, channels: int, factor: float, seed: int
) -> onnx.ModelProto:
    """The vision transformer with outlier channels in what attention reads of the residual stream.

    In each of `blocks`, `channels` channels of the first norm's result are `factor` times as large.
    """
    changed = _copy(model)
    weights = _Weights(changed)
    random = np.random.default_rng(seed)
    for block in blocks:
        picked = random.choice(len(weights[f"blocks.{block}.norm1.weight"]), channels, replace=False)
        for part in ("weight", "bias"):
            weights.scale(f"blocks.{block}.norm1.{part}", 0, picked, factor)
        name = _weight_of(changed, f"/blocks/blocks.{block}/attn/qkv/MatMul")
        weights.scale(name, 0, picked, 1 / factor)
    return changed


def plant_residual_ranges(model: onnx.ModelProto, *, spread: float, seed: int) -> onnx.ModelProto:
    """The convolutional network with wide ranges of channels wherever its residual sums can have them.

    Each channel of a residual stream is multiplied by a factor between 1 and `spread`, by the convolutions
    that write it, and divided by those that read it. Only streams that convolutions and sums alone touch.
    """
    changed = _copy(model)
    weights = _Weights(changed)
    random = np.random.default_rng(seed)
    for writers, readers in _streams(changed):
        count = weights[writers[0].input[1]].shape[0]
        factors = np.exp(random.uniform(0.0, np.log(spread), count)).astype(np.float32)
        every = np.arange(count)
        for writer in writers:
            for constant in writer.input[1:]:
                weights.scale(constant, 0, every, factors)
        for reader in readers:
            weights.scale(reader.input[1], 1, every, 1 / factors)
    return changed


def _streams(model: onnx.ModelProto) -> list[tuple[list[onnx.NodeProto], list[onnx.NodeProto]]]:
    """(convolutions that write, convolutions that read) of every residual stream that may be scaled."""
    makers = {output: node for node in model.graph.node for output in node.output}
    outputs = {value.name for value in model.graph.output}
    stream: dict[str, str] = {}

    def root(name: str) -> str:
        while stream.get(name, name) != name:
            name = stream[name]
        return name

    for node in model.graph.node:
        if node.op_type == "Add" and all(name in makers for name in node.input):
            for name in (*node.input, *node.output):
                stream.setdefault(name, name)
            for name in node.input:
                stream[root(name)] = root(node.output[0])
    found = []
    for top in sorted({root(name) for name in stream}):
        members = {name for name in stream if root(name) == top}
        writers = [makers[name] for name in sorted(members) if makers[name].op_type != "Add"]
        readers = [node for node in model.graph.node if members & set(node.input) and node.op_type != "Add"]
        is_linear = all(_is_plain(node) for node in (*writers, *readers)) and not members & outputs
        if is_linear and writers and readers:
            found.append((writers, readers))
    return found


def _is_plain(node: onnx.NodeProto) -> bool:
    """A convolution that is not grouped."""
    groups = [attribute.i for attribute in node.attribute if attribute.name == "group"]
    return node.op_type == "Conv" and groups in ([], [1])


class _Weights:
    """The initializers of a model, changed in place."""

    def __init__(self, model: onnx.ModelProto) -> None:
        self._tensors = {tensor.name: tensor for tensor in model.graph.initializer}

    def __getitem__(self, name: str) -> Floats:
        return numpy_helper.to_array(self._tensors[name])

    def scale(self, name: str, axis: int, places: npt.NDArray[np.int64], factor: float | Floats) -> None:
        """Multiply some places along an axis."""
        array = np.moveaxis(self[name].copy(), axis, -1)
        array[..., places] *= factor
        new = numpy_helper.from_array(np.ascontiguousarray(np.moveaxis(array, -1, axis)), name)
        self._tensors[name].CopyFrom(new)


def _copy(model: onnx.ModelProto) -> onnx.ModelProto:
    changed = onnx.ModelProto()
    changed.CopyFrom(model)
    return changed


def _weight_of(model: onnx.ModelProto, name: str) -> str:
    return next(str(node.input[1]) for node in model.graph.node if node.name == name)
