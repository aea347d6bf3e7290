# SPDX-License-Identifier: Apache-2.0
"""A KernelSpec as JSON, and the text key that stands for it in files."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from typing import Any

from quantrt.errors import DataError
from quantrt.kernels.kernel import KernelSpec

__all__ = ["kernel_key", "spec_from_json", "spec_to_json"]

KEY_DIGITS = 16
"""Hexadecimal digits of the digest: 64 bits, for at most thousands of kernels."""


def kernel_key(spec: KernelSpec) -> str:
    """A name for the spec that is the same in every process: "family.function.digest"."""
    text = json.dumps(spec_to_json(spec), sort_keys=True, separators=(",", ":"))
    digest = hashlib.sha256(text.encode()).hexdigest()[:KEY_DIGITS]
    return f"{spec.family}.{spec.function}.{digest}"


def spec_to_json(spec: KernelSpec) -> dict[str, Any]:
    """The spec as JSON-ready data; tuples become lists, the names in `aligned` are sorted."""
    fields = {item.name: getattr(spec, item.name) for item in dataclasses.fields(spec)}
    return {**fields, "aligned": sorted(spec.aligned)}


def spec_from_json(data: Any) -> KernelSpec:
    """The spec that `spec_to_json` wrote; lists become tuples.

    Raises:
        DataError: a field is missing, unknown, or of another kind.
    """
    names = {item.name for item in dataclasses.fields(KernelSpec)}
    if not isinstance(data, dict) or set(data) != names:
        got = ", ".join(sorted(map(str, data))) if isinstance(data, dict) else type(data).__name__
        raise DataError("cannot read a kernel's description", got=got, expected=", ".join(sorted(names)))
    fields = {name: _tuples(value) for name, value in data.items()}
    if not _is_good(fields):
        raise DataError("cannot read a kernel's description", got=repr(fields)[:200])
    return KernelSpec(**{**fields, "aligned": frozenset(fields["aligned"])})


def _tuples(value: Any) -> Any:
    return tuple(_tuples(item) for item in value) if isinstance(value, list | tuple) else value


def _is_good(fields: dict[str, Any]) -> bool:
    texts = (fields["family"], fields["function"])
    pairs = (fields["signature"], fields["constants"])
    return (
        all(isinstance(text, str) for text in texts)
        and all(isinstance(part, tuple) and all(_is_pair(item) for item in part) for part in pairs)
        and all(isinstance(type_name, str) for _, type_name in fields["signature"])
        and isinstance(fields["aligned"], tuple)
        and all(isinstance(name, str) for name in fields["aligned"])
        and all(type(fields[name]) is int and fields[name] > 0 for name in ("num_warps", "num_stages"))
        and isinstance(fields["is_exact"], bool)
    )


def _is_pair(item: Any) -> bool:
    return isinstance(item, tuple) and len(item) == 2 and isinstance(item[0], str)
