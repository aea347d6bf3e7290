# SPDX-License-Identifier: Apache-2.0
"""An engine in the place of a module: called and asked as that one was."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import nn

from quantrt.runtime.engine import Engine
from quantrt.runtime.executor import RunsThere
from quantrt.torch.diffusers.calls import CallForm, ResultForm
from quantrt.torch.diffusers.record import as_array

__all__ = ["EngineModule"]


class EngineModule(nn.Module):
    """Runs an engine. Attributes that it has not are the module's that it stands for, such as `config`.

    Results are on the device of the arguments and in the type that this module has: `to(...)` changes what
    the pipeline sees, not where the engine runs. Arguments on the engine's GPU stay there.

    Args:
        place: a tensor of the type and on the device that the module had in the pipeline.
    """

    def __init__(
        self, engine: Engine, module: nn.Module, call: CallForm, result: ResultForm, place: torch.Tensor
    ) -> None:
        super().__init__()
        self.engine = engine
        self.register_buffer("_place", place.new_empty(0), persistent=False)
        self._call, self._result = call, result
        self._types: Mapping[str, np.dtype[Any]] = {spec.name: np.dtype(spec.dtype) for spec in engine.inputs}
        self.__dict__["stands_for"] = module  # no submodule: moving this moves no weights of that
        self.eval()

    @property
    def dtype(self) -> torch.dtype:
        """The type of results."""
        return self._place.dtype  # type: ignore[no-any-return]  # a buffer

    @property
    def device(self) -> torch.device:
        """Where the pipeline takes this module to be."""
        return self._place.device  # type: ignore[no-any-return]  # a buffer

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """What the module returns for these arguments.

        Raises:
            UsageError: they are not of the form that the engine was made for.
            DataError: a shape is none that the engine takes.
        """
        tensors = self._call.tensors(args, kwargs)
        device = next(iter(tensors.values())).device
        given = {name: tensor.detach() for name, tensor in tensors.items() if name in self._types}
        executor = self.engine.executor
        if isinstance(executor, RunsThere) and executor.device == device:
            outputs = self.engine.run_device({name: tensor.to(device) for name, tensor in given.items()})
        else:
            outputs = self._run_on_host(given, device)
        return self._result.result(
            {name: x.to(self.dtype) if x.is_floating_point() else x for name, x in outputs.items()}
        )

    def _run_on_host(
        self, given: Mapping[str, torch.Tensor], device: torch.device
    ) -> dict[str, torch.Tensor]:
        arrays = {name: as_array(tensor).astype(self._types[name]) for name, tensor in given.items()}
        outputs = self.engine.run({name: np.ascontiguousarray(array) for name, array in arrays.items()})
        return {name: torch.from_numpy(array).to(device) for name, array in outputs.items()}

    def __getattr__(self, name: str) -> Any:
        """What is not here is the module's."""
        try:
            return super().__getattr__(name)
        except AttributeError:
            if "stands_for" not in self.__dict__:
                raise
            return getattr(self.__dict__["stands_for"], name)
