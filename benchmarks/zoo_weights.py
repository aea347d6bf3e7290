# SPDX-License-Identifier: Apache-2.0
"""Seeded weights that a file need not hold: graphs travel without them, and are filled where they run.

A weight is drawn by its name: `default_rng(crc32(name))`, standard normal in float32, times one scale. A
graph that was exported with such weights is written as a small file: a constant that is such a weight,
transposed or not, is left empty and names the draw; `filled` puts it back bit for bit.
"""

__all__ = ["Draws", "draw", "filled", "settle", "without_weights"]

import zlib
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import onnx

if TYPE_CHECKING:
    import torch

DRAWN = "drawn"
"""Key of a tensor's note: name, scale and `T` where it is transposed."""

SMALLEST = 256
"""Elements; smaller constants are left in the file."""

LEAST_RATIO = 0.5
"""Weights below this part of fan_in ** -0.5 are drawn at that: nets start smaller than they are trained."""

PASSES = 4

STEPS = 16
"""Of values that lie in the file: so many between two powers of two, for these compress."""

Array = npt.NDArray[Any]
Draws = dict[str, tuple[float, tuple[int, ...]]]


def draw(name: str, scale: float, shape: tuple[int, ...]) -> Array:
    """The weight called `name`, f32."""
    rng = np.random.default_rng(zlib.crc32(name.encode()))
    return np.asarray(rng.standard_normal(shape, np.float32) * np.float32(scale))


def settle(
    module: "torch.nn.Module", feeds: Iterable[Mapping[str, Array]], keep: tuple[str, ...] = ()
) -> Draws:
    """Give every layer a weight that does something, and BatchNorms statistics of `feeds`; scales by name.

    Args:
        keep: parts of names of parameters that stay as they are.
    """
    import torch

    draws: Draws = {}
    owners = {
        f"{prefix}.{key}".lstrip("."): owner
        for prefix, owner in module.named_modules()
        for key, _ in owner.named_parameters(recurse=False)
    }
    for name, parameter in module.named_parameters():
        if any(part in name for part in keep):
            continue
        if parameter.ndim < 2:
            _vary(name, parameter)
            continue
        scale = _scale(owners[name], parameter)
        if scale is not None:
            draws[name] = (scale, tuple(parameter.shape))
            parameter.data.copy_(torch.from_numpy(draw(name, scale, tuple(parameter.shape))))
    _see(module, feeds)
    return draws


def _scale(owner: "torch.nn.Module", parameter: "torch.nn.Parameter") -> float | None:
    """Of the draw; None for what has a structure of its own, such as the state matrix of an SSM."""
    from torch import nn

    std = float(parameter.detach().std())
    if isinstance(owner, nn.Embedding | nn.EmbeddingBag):
        return max(std, 0.1)
    is_transposed = isinstance(owner, nn.ConvTranspose1d | nn.ConvTranspose2d | nn.ConvTranspose3d)
    if is_transposed:
        fan_in = parameter.numel() / parameter.shape[1] / float(np.prod(owner.stride))  # type: ignore[arg-type]
        return max(std, float(fan_in**-0.5))
    if isinstance(owner, nn.Linear | nn.Conv1d | nn.Conv2d | nn.Conv3d) or type(owner).__name__ == "Conv1D":
        fan_in = parameter.shape[0] if type(owner).__name__ == "Conv1D" else parameter[0].numel()
        usual = float(fan_in**-0.5)
        return std if std > LEAST_RATIO * usual else usual
    return 0.1 if std < 1e-3 else None  # a token, a table of positions


def _vary(name: str, parameter: "torch.nn.Parameter") -> None:
    """Biases that are not all 0, and scales of norms and layers that differ from 1 and from nothing."""
    import torch

    values = parameter.detach()
    spread = torch.from_numpy(draw(name, 0.1, tuple(values.shape)))
    usual = float(values.abs().mean()) if values.numel() else 0.0
    parameter.data.copy_(_coarse(values + spread * usual if usual > 1e-3 else 2.0 * spread))


def _coarse(values: "torch.Tensor") -> "torch.Tensor":
    import torch

    mantissa, exponent = torch.frexp(values)
    return torch.ldexp((mantissa * 2 * STEPS).round() / (2 * STEPS), exponent)


def _see(module: "torch.nn.Module", feeds: Iterable[Mapping[str, Array]]) -> None:
    import torch

    module.eval()
    kinds = (torch.nn.BatchNorm1d, torch.nn.BatchNorm2d, torch.nn.BatchNorm3d)
    norms = [m for m in module.modules() if isinstance(m, kinds) and m.track_running_stats]
    for norm in norms:
        norm.momentum = None  # a plain average over the passes
        norm.reset_running_stats()
        norm.train()
    with torch.no_grad():
        for _, feed in zip(range(PASSES if norms else 0), feeds, strict=False):
            module(*(torch.from_numpy(value) for value in feed.values()))
    for norm in norms:
        for seen in (norm.running_mean, norm.running_var):
            seen.copy_(_coarse(seen))  # type: ignore[union-attr,arg-type]
    module.eval()


def without_weights(model: onnx.ModelProto, draws: Draws) -> int:
    """Empty every constant that is a draw, in place; the bytes of large ones that are none."""
    known: dict[int, str] = {}
    for name, (scale, shape) in draws.items():
        weight = draw(name, scale, shape)
        if weight.size >= SMALLEST:
            known[zlib.crc32(weight.data)] = f"{scale!r} {name}"
            if weight.ndim == 2:
                known[zlib.crc32(np.ascontiguousarray(weight.T).data)] = f"{scale!r} {name} T"
    left = 0
    for tensor in _constants(model):
        if int(np.prod(tensor.dims)) < SMALLEST or tensor.data_type != onnx.TensorProto.FLOAT:
            continue
        values = onnx.numpy_helper.to_array(tensor)
        note = known.get(zlib.crc32(np.ascontiguousarray(values).data))
        if note is None:
            left += values.nbytes
            continue
        tensor.ClearField("raw_data")
        tensor.ClearField("float_data")
        tensor.metadata_props.add(key=DRAWN, value=note)
    return left


def filled(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model with the weights that it was left without, in place."""
    for tensor in _constants(model):
        notes = [prop.value for prop in tensor.metadata_props if prop.key == DRAWN]
        if notes:
            scale, name, *transposed = notes[0].split(" ")
            dims = tuple(tensor.dims)
            weight = draw(name, float(scale), dims[::-1] if transposed else dims)
            tensor.raw_data = np.ascontiguousarray(weight.T if transposed else weight).tobytes()
            del tensor.metadata_props[:]
    return model


def _constants(model: onnx.ModelProto) -> Iterable[onnx.TensorProto]:
    yield from model.graph.initializer
    for node in model.graph.node:
        yield from (item.t for item in node.attribute if node.op_type == "Constant" and item.name == "value")
