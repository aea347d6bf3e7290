# SPDX-License-Identifier: Apache-2.0
"""What the steps of a program share, opened: weights on the device, kernels, ONNX nodes."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import onnx
import onnx_ir as ir
import torch
from google.protobuf.message import DecodeError  # type: ignore[import-untyped]

from quantrt.errors import DeviceError, ModelError
from quantrt.ir.mapped import release_pages
from quantrt.operators.extract import index_nodes
from quantrt.plan.coded_weight import CodedWeight
from quantrt.plan.grouped_weight import MIDDLE, GroupedWeight
from quantrt.plan.program import Program
from quantrt.runtime.cuda.device.cudnn_library import open_plans
from quantrt.runtime.cuda.device.launcher import open_launchers
from quantrt.runtime.cuda.runner import Assets
from quantrt.runtime.cuda.tensors import tensor_on

__all__ = ["open_assets", "upload", "weight_bytes"]


def open_assets(program: Program, device: torch.device) -> Assets:
    """Weights, kernels and plans of the program on the device.

    On the CPU weights are used where they are: the program must outlive the assets.

    Raises:
        DeviceError: out of memory, or no machine code fits the GPU, or cuDNN is not the one that made a plan.
        ModelError: a weight or the nodes cannot be read.
    """
    weights = {key: upload(key, array, device) for key, array in program.weights.items()}
    weights |= {key: _expanded(key, weight, device) for key, weight in program.coded.items()}
    kernels = open_launchers(program.kernels, device)
    is_gpu = device.type == "cuda"
    plans = open_plans(program.plans, device) if is_gpu else {}
    if is_gpu:
        torch.cuda.synchronize(device)  # other streams will read the weights
    return Assets(device, weights, kernels, _nodes(program.nodes), plans)


def weight_bytes(weights: Mapping[str, torch.Tensor]) -> int:
    """What the weights take on the device."""
    return sum(tensor.untyped_storage().nbytes() for tensor in weights.values())


def upload(key: str, array: np.ndarray, device: torch.device) -> torch.Tensor:
    """A weight on the device; on the CPU it is used where it is, and on torch's meta device it is not read.

    Raises:
        DeviceError: out of memory; names the weight.
        ModelError: torch has no such element type.
    """
    try:
        host = tensor_on(array)
        if device.type == "cpu":
            return host
        tensor = host.to(device)
        if device.type == "meta":
            return tensor
    except torch.OutOfMemoryError as error:
        raise _no_room(key, array.nbytes, device, error) from error
    except ModelError as error:
        raise ModelError(f"weight '{key}' cannot be a tensor", got=error.got) from error
    release_pages(array)
    return tensor


def _expanded(key: str, weight: CodedWeight | GroupedWeight, device: torch.device) -> torch.Tensor:
    """The floats that a weight's codes stand for, made on the device.

    Raises:
        DeviceError: out of memory; names the weight.
    """
    codes, scale, *zeros = (upload(key, array, device) for array in weight.arrays)
    try:
        if isinstance(weight, GroupedWeight):
            return _ungrouped(weight, codes, scale, *zeros)
        floats = codes.to(torch.float32).mul_(scale.reshape(weight.scale_shape()))
        return floats.to(getattr(torch, weight.dtype))
    except torch.OutOfMemoryError as error:
        raise _no_room(key, 4 * weight.codes.size, device, error) from error


def _ungrouped(
    weight: GroupedWeight, codes: torch.Tensor, scale: torch.Tensor, zero: torch.Tensor | None = None
) -> torch.Tensor:
    """The floats of groups, as the matrix lies."""

    def spread(factors: torch.Tensor) -> torch.Tensor:
        return factors.repeat_interleave(weight.group_size, dim=1)[:, : weight.inputs]

    pairs = torch.stack([codes & 0xF, codes >> 4], dim=-1).reshape(len(codes), -1)[:, : weight.inputs]
    floats = pairs.to(torch.float32).sub_(MIDDLE if zero is None else spread(zero))
    floats = floats.mul_(spread(scale)).to(getattr(torch, weight.dtype))
    return floats if weight.axis else floats.t().contiguous()


def _no_room(key: str, size_bytes: int, device: torch.device, error: Exception) -> DeviceError:
    return DeviceError(
        f"{device} has no room for weight '{key}' of {size_bytes} bytes",
        got=str(error).partition("\n")[0],
        hint="more --device-memory, freeing memory on the GPU, or a larger one",
    )


def _nodes(proto: bytes) -> ir.Model | None:
    if not proto:
        return None
    try:
        return index_nodes(ir.from_proto(_parsed(proto)))
    except (ir.serde.SerdeError, ValueError, KeyError, TypeError) as error:
        raise ModelError(
            "the nodes of the program cannot be read", got=str(error).partition("\n")[0]
        ) from error


def _parsed(proto: bytes) -> onnx.ModelProto:
    model = onnx.ModelProto()
    try:
        model.ParseFromString(proto)
    except DecodeError as error:
        raise ValueError(str(error)) from error
    return model
