# SPDX-License-Identifier: Apache-2.0
"""Models made to break under int8, which compute in floats what the models they are made of compute.

Some channels of an activation are multiplied, and the weights that read them are divided: floats do not mind,
8-bit codes with one scale for all channels lose the others. Trained models come with such channels:
transformers in their residual streams (Dettmers et al. 2022, "LLM.int8()"), depthwise networks in the ranges
of their channels (Nagel et al. 2019, "Data-Free Quantization").
"""

__all__ = ["plant_depthwise_ranges", "plant_stream_outliers"]

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


def plant_depthwise_ranges(
    model: onnx.ModelProto, *, convolutions: Sequence[str], spread: float, seed: int
) -> onnx.ModelProto:
    """The network with wide ranges of channels before some of its depthwise convolutions.

    Each channel that the named convolutions read is multiplied by a factor between 1 and `spread`; it is the
    convolution before them that makes it so, through a Relu or nothing at all.
    """
    changed = _copy(model)
    weights = _Weights(changed)
    makers = {output: node for node in changed.graph.node for output in node.output}
    nodes = {node.name: node for node in changed.graph.node}
    random = np.random.default_rng(seed)
    for name in convolutions:
        reader = nodes[name]
        before = makers[reader.input[0]]
        while before.op_type == "Relu":
            before = makers[before.input[0]]
        if before.op_type != "Conv":
            raise ValueError(f"'{name}' reads what a {before.op_type} makes, not a convolution")
        count = weights[before.input[1]].shape[0]
        factors = np.exp(random.uniform(0.0, np.log(spread), count)).astype(np.float32)
        for constant in before.input[1:]:
            weights.scale(constant, 0, np.arange(count), factors)
        weights.scale(reader.input[1], 0, np.arange(count), 1 / factors)
    return changed


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
