# SPDX-License-Identifier: Apache-2.0
"""Where `quantrt run` puts outputs: one file of all samples, or a file for each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from quantrt.errors import DataError
from quantrt.ir.array_file import write_arrays

if TYPE_CHECKING:
    import numpy as np

__all__ = ["FilePerSample", "OneFile"]


class OneFile:
    """All samples along the first axis of one array per output; written when it is closed."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._parts: dict[str, list[np.ndarray]] = {}
        self.facts: dict[str, Any] = {}

    def add(self, outputs: Mapping[str, np.ndarray], first_sample: int, count: int) -> None:
        """The outputs of one more batch of `count` samples."""
        for name, array in outputs.items():
            self._parts.setdefault(name, []).append(array)

    def close(self) -> None:
        """Write the file.

        Raises:
            DataError: the shapes of two batches differ beyond the first axis.
            DeviceError: it cannot be written.
        """
        arrays = {name: _joined(name, parts) for name, parts in self._parts.items()}
        write_arrays(self._path, arrays)
        self.facts = _facts(arrays)

    def notes(self, samples: int) -> list[str]:
        """Outputs in which nobody can tell the samples apart."""
        names = [name for name, facts in self.facts.items() if facts["shape"][0] != samples]
        text = f"no row for each sample in {', '.join(repr(name) for name in names)}"
        return [f"{text}: with a folder as -o every sample has a file"] if names else []


class FilePerSample:
    """A folder with 000000.npz for the first sample, 000001.npz for the second, and on."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.facts: dict[str, Any] = {}
        """Of the first sample's outputs."""
        self._other_shapes: dict[str, None] = {}

    def add(self, outputs: Mapping[str, np.ndarray], first_sample: int, count: int) -> None:
        """Write the outputs of one more batch of `count` samples.

        Raises:
            DataError: an output of several samples has no row for each.
            DeviceError: a file cannot be written.
        """
        for row in range(count):
            arrays = {name: _row(name, array, row, count) for name, array in outputs.items()}
            write_arrays(self._folder / f"{first_sample + row:06d}.npz", arrays)
            facts = _facts(arrays)
            self.facts = self.facts or facts
            self._other_shapes |= {name: None for name in facts if facts[name] != self.facts.get(name)}

    def close(self) -> None:
        """Nothing: all is written."""

    def notes(self, samples: int) -> list[str]:
        """Outputs whose shapes differ from sample to sample."""
        names = ", ".join(map(repr, self._other_shapes))
        return [f"shapes are those of the first sample; others differ in {names}"] if names else []


def _row(name: str, array: np.ndarray, row: int, count: int) -> np.ndarray:
    if count == 1:
        return array
    if array.ndim == 0 or len(array) != count:
        raise DataError(
            f"cannot tell the samples of output '{name}' apart",
            got=f"shape {list(array.shape)} of {count} samples",
            hint="--batch-size 1",
        )
    return array[row : row + 1]


def _joined(name: str, arrays: Sequence[np.ndarray]) -> np.ndarray:
    import numpy as np

    arrays = [np.atleast_1d(array) for array in arrays]
    for array in arrays:
        if array.shape[1:] != arrays[0].shape[1:]:
            raise DataError(
                f"cannot put the batches of output '{name}' into one array",
                got=f"shapes {arrays[0].shape} and {array.shape}",
                hint="-o FOLDER, which gets a file for every sample",
            )
    return np.concatenate(arrays)


def _facts(arrays: Mapping[str, np.ndarray]) -> dict[str, Any]:
    return {
        name: {"dtype": "string" if array.dtype == object else str(array.dtype), "shape": list(array.shape)}
        for name, array in arrays.items()
    }
