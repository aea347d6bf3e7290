# SPDX-License-Identifier: Apache-2.0
"""A module of a pipeline as an ONNX file, for the form of calls that was recorded.

The weights are written from where they are, tensor by tensor, into a file beside the graph: torch's exporter
holds references to them and no copies. The first axis of whatever has one row per sample is free; other sizes
are those of the recorded calls, as are the constants.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path

import torch
from torch import nn

from quantrt.errors import ModelError, UsageError
from quantrt.torch.diffusers.calls import CallForm, ResultForm, batch_of

__all__ = ["export_module"]

EXPORT_BATCH = 2
"""torch.export takes a size of 1 for a constant."""

MAX_BATCH = 32
"""Bound of the free batch: diffusers computes differently from 64 rows on (`Upsample2D.forward`)."""


def export_module(
    module: nn.Module,
    call: CallForm,
    result: ResultForm,
    example: Mapping[str, torch.Tensor],
    path: Path,
) -> None:
    """Write `path` and, beside it, its weights as `path`.data, in float32.

    The module is in evaluation mode afterwards, and in the type that it had.

    Args:
        example: tensors of one call, in the order of `call.paths`.

    Raises:
        UsageError: onnxscript is not installed.
        ModelError: torch cannot export the module.
        DeviceError: the disk is full.
    """
    _check_exporter()
    own_type = next(module.parameters()).dtype
    module.eval().to(torch.float32)
    batch = batch_of(example)
    free = torch.export.Dim("batch", min=1, max=MAX_BATCH)
    tensors, shapes = [], []
    for tensor in example.values():
        is_batched = tensor.ndim > 0 and tensor.shape[0] == batch
        tensors.append(_example(tensor, is_batched=is_batched))
        shapes.append({0: free} if is_batched else None)
    try:
        with warnings.catch_warnings(), torch.no_grad():
            warnings.simplefilter("ignore")  # torch's, about names of axes and its own deprecations
            program = torch.onnx.export(
                _Called(module, call, result),
                tuple(tensors),
                dynamo=True,
                dynamic_shapes=(tuple(shapes),),
                input_names=list(call.paths),
                output_names=list(result.paths),
                verbose=False,
            )
            if program is None:
                raise ModelError(f"torch made no ONNX program of '{call.module}'")
            program.save(str(path), external_data=True)
    except (RuntimeError, torch.onnx.OnnxExporterError) as error:
        reason = str(error).strip().splitlines()
        raise ModelError(
            f"torch cannot export '{call.module}' to ONNX", got=reason[0] if reason else type(error).__name__
        ) from error
    finally:
        module.to(own_type)


class _Called(nn.Module):
    """The module as a function of its tensors, in their order."""

    def __init__(self, module: nn.Module, call: CallForm, result: ResultForm) -> None:
        super().__init__()
        self.module = module
        self._call, self._result = call, result

    def forward(self, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """The tensors of its result, in their order."""
        return self._result.tensors(self.module(**self._call.arguments(tensors)))


def _example(tensor: torch.Tensor, *, is_batched: bool) -> torch.Tensor:
    """One call's tensor with EXPORT_BATCH rows, floats as float32."""
    if is_batched:
        tensor = tensor[:1].expand(EXPORT_BATCH, *tensor.shape[1:]).contiguous()
    return tensor.float() if tensor.is_floating_point() else tensor


def _check_exporter() -> None:
    if find_spec("onnxscript") is None:  # torch.onnx.export needs it, and says so later and less clearly
        raise UsageError(
            "cannot export a module of torch: onnxscript is not installed",
            hint="pip install 'quantrt[diffusers]'",
        )
