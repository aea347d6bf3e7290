# SPDX-License-Identifier: Apache-2.0
"""Tensors that callers give to an engine on a device, those without a value among them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch
from torch.utils.dlpack import from_dlpack

from quantrt.errors import DataError
from quantrt.ir.tensor_spec import TensorSpec
from quantrt.operators.element_types import to_numpy
from quantrt.runtime.cuda.tensors import tensor_on, torch_dtype
from quantrt.runtime.no_samples import Runs, run_empty

__all__ = ["given_tensors", "run_empty_there"]


def given_tensors(
    inputs: Mapping[str, Any], names: Iterable[str], device: torch.device
) -> dict[str, torch.Tensor]:
    """Inputs by name: torch tensors, or anything that speaks DLPack.

    Raises:
        DataError: an input is missing or lies elsewhere.
    """
    found = {}
    for name in names:
        if name not in inputs:
            raise DataError(f"input '{name}' was not given", got=", ".join(inputs) or "none")
        value = inputs[name]
        tensor = value if isinstance(value, torch.Tensor) else from_dlpack(value)
        if tensor.device != device:
            raise DataError(
                f"input '{name}' is not on the engine's device", got=str(tensor.device), expected=str(device)
            )
        found[name] = tensor
    return found


def run_empty_there(
    lane: Runs,
    given: Mapping[str, Any],
    device: torch.device,
    inputs: Sequence[TensorSpec],
    outputs: Sequence[TensorSpec],
) -> dict[str, torch.Tensor]:
    """Outputs on the device for inputs of which one or more have no values; see run_empty.

    Raises:
        DataError: an input lies elsewhere, or the engine refuses it.
    """
    tensors = given_tensors(given, [spec.name for spec in inputs], device)
    arrays = {spec.name: to_numpy(tensors[spec.name].to("cpu", torch_dtype(spec.dtype))) for spec in inputs}
    made = run_empty(lane, arrays, inputs, outputs)
    return {name: tensor_on(array).to(device) for name, array in made.items()}
