# SPDX-License-Identifier: Apache-2.0
"""An engine in the place of a module: called and asked as that one was."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import nn

from quantrt.runtime.engine import Engine
from quantrt.torch.diffusers.calls import CallForm, ResultForm
from quantrt.torch.diffusers.record import as_array

__all__ = ["EngineModule"]


class EngineModule(nn.Module):
    """Runs an engine. Attributes that it has not are the module's that it stands for, such as `config`.

    Attributes:
        engine: what runs.
        dtype, device: of the module that it stands for; results are in them.
    """

    def __init__(self, engine: Engine, module: nn.Module, call: CallForm, result: ResultForm) -> None:
        super().__init__()
        first = next(module.parameters())
        self.engine = engine
        self.dtype, self.device = first.dtype, first.device
        self._call, self._result = call, result
        self._types: Mapping[str, np.dtype[Any]] = {spec.name: np.dtype(spec.dtype) for spec in engine.inputs}
        self.__dict__["stands_for"] = module  # no submodule: moving this moves no weights of that
        self.eval()

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """What the module returns for these arguments.

        Raises:
            UsageError: they are not of the form that the engine was made for.
            DataError: a shape is none that the engine takes.
        """
        tensors = self._call.tensors(args, kwargs)
        inputs = {
            name: as_array(tensor).astype(self._types[name])
            for name, tensor in tensors.items()
            if name in self._types
        }
        outputs = self.engine.run({name: np.ascontiguousarray(array) for name, array in inputs.items()})
        return self._result.result({name: self._tensor(array) for name, array in outputs.items()})

    def _tensor(self, array: np.ndarray) -> torch.Tensor:
        tensor = torch.from_numpy(array).to(self.device)
        return tensor.to(self.dtype) if tensor.is_floating_point() else tensor

    def __getattr__(self, name: str) -> Any:
        """What is not here is the module's."""
        try:
            return super().__getattr__(name)
        except AttributeError:
            if "stands_for" not in self.__dict__:
                raise
            return getattr(self.__dict__["stands_for"], name)
