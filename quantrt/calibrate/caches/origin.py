# SPDX-License-Identifier: Apache-2.0
"""What a calibration cache was made of, in a JSON file beside it: CACHE.json.

TensorRT's format has no place for it: Model-Optimizer fails on a line that is no tensor, ONNX Runtime takes
one for a tensor, and what TensorRT itself does is not published. A file beside the cache disturbs nobody.
"""

from __future__ import annotations

import hashlib
import json
import struct
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from quantrt.errors import DataError
from quantrt.ir.atomic import replace_file
from quantrt.model.model import Fingerprint

__all__ = ["Origin", "origin_path", "read_origin", "scales_hash", "write_origin"]

FORMAT = "quantrt-calibration-cache"
FORMAT_VERSION = 1


@dataclass(frozen=True)
class Origin:
    """Where the scales of a cache come from.

    Attributes:
        fingerprint: the model.
        samples, data_hash: the calibration samples.
        is_random: they were random numbers; the scales mean nothing.
        method: how ranges were chosen.
        scales_hash: of the scales it speaks of; see `scales_hash`.
    """

    fingerprint: Fingerprint
    samples: int
    data_hash: str
    is_random: bool
    method: str
    scales_hash: str

    def is_of(self, scales: Mapping[str, float]) -> bool:
        """Whether these are the scales it was written beside."""
        return self.scales_hash == scales_hash(scales)


def scales_hash(scales: Mapping[str, float]) -> str:
    """SHA-256 over names and float32 bits, in hexadecimal; a changed header does not change it."""
    digest = hashlib.sha256()
    for name, scale in sorted(scales.items()):
        digest.update(name.encode() + b"\0" + struct.pack(">f", scale))
    return digest.hexdigest()


def origin_path(cache: Path) -> Path:
    """The file beside a cache."""
    return cache.with_name(f"{cache.name}.json")


def write_origin(origin: Origin, cache: Path) -> None:
    """Write the file beside a cache.

    Raises:
        DeviceError: it cannot be written.
    """
    data = {"format": FORMAT, "version": FORMAT_VERSION, **asdict(origin)}
    with replace_file(origin_path(cache)) as file:
        file.write((json.dumps(data, indent=2) + "\n").encode())


def read_origin(cache: Path) -> Origin | None:
    """What the file beside a cache says; None when there is none, or it is another program's JSON.

    Raises:
        DataError: it cannot be read, is no whole JSON, or is ours and damaged.
    """
    path = origin_path(cache)
    hint = f"to delete it: '{cache}' can be used without"
    try:
        data = json.loads(path.read_bytes())
    except FileNotFoundError:
        return None
    except OSError as error:
        raise DataError(
            f"cannot read '{path}', which says what '{cache}' was made of", got=error.strerror, hint=hint
        ) from error
    except (ValueError, RecursionError) as error:
        raise DataError(
            f"cannot read '{path}', which says what '{cache}' was made of: it is damaged",
            got=str(error).partition("\n")[0],
            expected="JSON",
            hint=hint,
        ) from error
    if not isinstance(data, dict) or data.get("format") != FORMAT:
        return None
    try:
        if data["version"] != FORMAT_VERSION:
            raise ValueError(f"version {data['version']}")
        if not isinstance(data["is_random"], bool):
            raise ValueError(f"is_random {data['is_random']!r}, which is no truth")
        marks = data["fingerprint"]
        return Origin(
            fingerprint=Fingerprint(str(marks["graph"]), str(marks["weights"])),
            samples=int(data["samples"]),
            data_hash=str(data["data_hash"]),
            is_random=data["is_random"],
            method=str(data["method"]),
            scales_hash=str(data["scales_hash"]),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise DataError(f"cannot read '{path}': it is damaged", got=str(error), hint=hint) from error
