# SPDX-License-Identifier: Apache-2.0
"""What a module is called with while a pipeline runs: one file per sample, and the form of the calls.

Samples of all denoising steps are one stream, as calibration takes any data: no range depends on how many
steps or prompts there were, only on the values. The step is in the name of the file, `p003-s012-r1.npz`, for
those who want the ranges of single steps: `quantrt calibrate` on a folder of its files.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from quantrt.errors import DataError
from quantrt.ir.array_file import write_arrays
from quantrt.torch.diffusers.calls import CallForm, ResultForm, batch_of
from quantrt.torch.diffusers.parts import Part

__all__ = ["Recording", "Samples", "as_array", "recording"]


@dataclass
class Recording:
    """The calls of one part.

    Attributes:
        folder: where the samples are.
        every: only calls whose running number this divides are kept.
        call, result: forms of the calls and of what they return.
        example: tensors of the first call.
        calls: how many there were.
    """

    part: Part
    folder: Path
    every: int = 1
    call: CallForm | None = None
    result: ResultForm | None = None
    example: dict[str, torch.Tensor] = field(default_factory=dict)
    calls: int = 0
    prompt: int = 0
    step: int = 0

    def start_prompt(self, prompt: int) -> None:
        """Samples from here on are of this prompt."""
        self.prompt, self.step = prompt, 0

    def take(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> None:
        """Write the samples of one call: a forward hook of the part's module.

        Raises:
            UsageError: it has another form than those before it.
            DeviceError: the disk is full.
        """
        if self.call is None:
            self.call = CallForm.of(self.part.name, module, args, kwargs)
            self.result = ResultForm.of(result)
        tensors = self.call.tensors(args, kwargs)
        if not self.example:
            self.example = {name: tensor.detach().clone() for name, tensor in tensors.items()}
        if self.calls % self.every == 0:
            self._write(tensors)
        self.calls += 1
        self.step += 1

    def forms(self) -> tuple[CallForm, ResultForm]:
        """The forms of calls and results.

        Raises:
            DataError: there was no call.
        """
        if self.call is None or self.result is None:
            raise DataError(
                f"the pipeline never called '{self.part.name}': there is nothing to calibrate on",
                hint="prompts that need it, or modules=... without it",
            )
        return self.call, self.result

    def _write(self, tensors: dict[str, torch.Tensor]) -> None:
        batch = batch_of(tensors)
        arrays = {name: as_array(tensor) for name, tensor in tensors.items()}
        for row in range(batch):
            sample = {
                name: array[row : row + 1] if array.ndim and array.shape[0] == batch else array
                for name, array in arrays.items()
            }
            write_arrays(self.folder / f"p{self.prompt:03d}-s{self.step:03d}-r{row}.npz", sample)


@dataclass(frozen=True)
class Samples:
    """Recorded samples, read again and again, as far as they are inputs of a model."""

    paths: Sequence[Path]
    names: frozenset[str]

    def __iter__(self) -> Iterator[dict[str, np.ndarray]]:
        """One dict of arrays per sample."""
        for path in self.paths:
            with np.load(path, allow_pickle=False) as arrays:
                yield {name: arrays[name] for name in arrays.files if name in self.names}


@contextmanager
def recording(recordings: list[Recording]) -> Iterator[None]:
    """Record the parts as long as the block runs."""
    handles = []
    try:
        for one in recordings:
            one.folder.mkdir(parents=True, exist_ok=True)
            handles.append(one.part.module.register_forward_hook(one.take, with_kwargs=True))
        yield
    finally:
        for handle in handles:
            handle.remove()


def as_array(tensor: torch.Tensor) -> np.ndarray:
    """A tensor as an array on the host; floats as float32."""
    tensor = tensor.detach()
    array: np.ndarray = (tensor.float() if tensor.is_floating_point() else tensor).cpu().numpy()
    return array
