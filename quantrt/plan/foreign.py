# SPDX-License-Identifier: Apache-2.0
"""What to say about a file that is not an engine, or no longer one."""

from __future__ import annotations

from pathlib import Path

from quantrt.errors import ModelError
from quantrt.ir.missing_file import missing_file

__all__ = ["damaged", "foreign", "missing"]

_BUILD = "`quantrt build MODEL.onnx -o ENGINE.qrt`"

_KINDS = (
    (b"PK\x03\x04", "a zip archive"),
    (b"\x08", "an ONNX model or another protobuf"),
    (b"<?xml", "an XML file"),
    (b"\x1f\x8b", "a gzip archive"),
    (b"\x93NUMPY", "a numpy array"),
    (b"\x80", "a pickle"),
    (b"ftrt", "a TensorRT engine"),
    (b"ptrt", "a TensorRT engine"),
    (b"version https://git-lfs", "a Git LFS pointer: the file itself was not fetched"),
)


def foreign(path: Path, start: bytes) -> ModelError:
    """The error for a file that never was an engine, from its first bytes."""
    kind = next((text for magic, text in _KINDS if start.startswith(magic)), None)
    if not start:
        kind = "an empty file"
    elif kind is None:
        kind = "a safetensors file without QuantRT's header" if start[8:9] == b"{" else "an unknown format"
    return ModelError(f"'{path}' is not a QuantRT engine", got=kind, expected="a .qrt file", hint=_BUILD)


def damaged(path: Path, reason: str) -> ModelError:
    """The error for an engine whose bytes are not those that were written."""
    return ModelError(
        f"cannot read engine '{path}': the file is damaged",
        got=reason,
        hint=f"copying it again, or {_BUILD}",
    )


def missing(path: Path) -> ModelError:
    """The error for a path with no regular file behind it."""
    if path.is_dir():
        return ModelError(f"cannot read engine '{path}'", got="a folder", expected="a .qrt file")
    return missing_file(path, ".qrt")
