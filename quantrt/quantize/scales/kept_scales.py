# SPDX-License-Identifier: Apache-2.0
"""Scales of weights, kept from one build to the next beside the timing cache.

    FILE.scales    safetensors: the scales of a weight, float32, by the digest of all that they follow from

Searching the scale of least error reads a weight several times over; making its codes on a scale that is
known, once. What a scale is of is known by its content, so that the file serves every model.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import safetensors
import safetensors.numpy

from quantrt.ir.atomic import replace_file
from quantrt.ir.kept_file import add_to_kept, warn_damaged
from quantrt.ir.mapped import stream_bytes
from quantrt.source_digest import source_digest

__all__ = ["KeptScales"]

Array = np.ndarray[Any, Any]

SUFFIX = ".scales"
FORMAT = "quantrt kept scales"
SOURCES = ("quantize",)
"""Folders whose code finds what is kept."""


class KeptScales:
    """The file of one timing cache, read when this is made. May be asked by several threads at once.

    Args:
        timing_cache: whose name the file's begins with.
    """

    def __init__(self, timing_cache: Path) -> None:
        self.path = timing_cache.with_name(timing_cache.name + SUFFIX)
        self._facts = {"format": FORMAT, "sources": source_digest(SOURCES), "numpy": np.__version__}
        self._scales = self._read()
        self._is_new = False

    def of(self, weight: Array, axis: int | None, qmax: int, find: Callable[[], Array]) -> Array:
        """The scales of a weight's channels along an axis, float32 [C]; found where they are not known."""
        key = _key(weight, axis, qmax)
        if key not in self._scales:
            self._scales[key] = find()
            self._is_new = True
        return self._scales[key]

    def save(self) -> None:
        """Add to the file what was found, where it lacks something; see `add_to_kept`."""
        if not self._is_new:
            return
        with add_to_kept(self.path):
            whole = {**self._read(), **self._scales}
            facts = {**self._facts, "digest": _digest(whole)}
            with replace_file(self.path) as file:
                file.write(safetensors.numpy.save(whole, metadata=facts))
        self._is_new = False

    def _read(self) -> dict[str, Array]:
        """What the file has; nothing where other code found it, or it is damaged, which a warning says."""
        if not self.path.exists():
            return {}
        try:
            with safetensors.safe_open(self.path, framework="np") as file:
                facts = dict(file.metadata() or {})
                found = {key: file.get_tensor(key) for key in file.keys()}
        except (safetensors.SafetensorError, OSError) as error:
            warn_damaged(self.path, error)
            return {}
        digest = facts.pop("digest", "")
        if facts != self._facts:
            return {}
        if digest != _digest(found):
            warn_damaged(self.path, "its scales do not match their checksum")
            return {}
        return found


def _digest(scales: Mapping[str, Array]) -> str:
    """SHA-256, in hexadecimal, of all scales with their keys: a changed bit would be a wrong weight."""
    digest = hashlib.sha256()
    for key, array in sorted(scales.items()):
        digest.update(f"{key} {array.dtype} {array.shape}\n".encode() + array.tobytes())
    return digest.hexdigest()


def _key(weight: Array, axis: int | None, qmax: int) -> str:
    digest = hashlib.sha256(f"{weight.dtype} {weight.shape} {axis} {qmax}\n".encode())
    for chunk in stream_bytes(weight):
        digest.update(chunk)
    return digest.hexdigest()
