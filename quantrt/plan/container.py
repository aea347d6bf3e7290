# SPDX-License-Identifier: Apache-2.0
"""The outer layer of an engine file: a safetensors file with a checksummed JSON header in its metadata.

    8 bytes   N, little endian
    N bytes   {"__metadata__": {"quantrt": HEADER}, TENSOR: {"dtype", "shape", "data_offsets"}, ...}, spaces
    the rest  the tensors, without gaps

HEADER is JSON in a string. Its "header_sha256" is the digest of the N bytes with these 64 digits written as
zeros, and stays there in every format version; its "data_sha256" is the digest of the digests of the rest, in
blocks of 64 MiB that can be checked at once. The N bytes end on a multiple of 64, and tensors come by falling
element size, so that each is aligned to its elements.
Format: https://huggingface.co/docs/safetensors/index#format
"""

from __future__ import annotations

import hashlib
import json
import math
import mmap
import os
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import safetensors

from quantrt.errors import InternalError, ModelError
from quantrt.ir.atomic import replace_file
from quantrt.ir.mapped import map_file, stream_bytes
from quantrt.plan.foreign import damaged, foreign, missing
from quantrt.threads import usable_cores

__all__ = ["FORMAT_VERSION", "Container", "open_container", "write_container"]

FORMAT_VERSION = 5
"""1: machine code of GPUs stood beside the graph, as tensors. 2: "data_sha256" is the digest of the rest as a
whole. 3: all weights are as kernels read them. 4: models for CPUs and the report are not compressed. Such
files are still read."""
METADATA_KEY = "quantrt"
MAX_HEADER_BYTES = 100_000_000  # the safetensors library reads no longer ones

_LENGTH_BYTES = 8
_BLOCK_BYTES = 64 << 20
_BLOCKS_SINCE = 3
_ALIGNMENT = 64  # bytes: a cache line, and the widest vector register
_ZERO_DIGEST = "0" * 64
_OPENING = b'{"__metadata__":{"' + METADATA_KEY.encode() + b'":"{'

_DTYPE_NAMES = {
    np.dtype(np.float64): "F64",
    np.dtype(np.float32): "F32",
    np.dtype(np.float16): "F16",
    np.dtype(ml_dtypes.bfloat16): "BF16",
    np.dtype(ml_dtypes.float8_e4m3fn): "F8_E4M3",
    np.dtype(ml_dtypes.float8_e5m2): "F8_E5M2",
    np.dtype(np.int64): "I64",
    np.dtype(np.int32): "I32",
    np.dtype(np.int16): "I16",
    np.dtype(np.int8): "I8",
    np.dtype(np.uint64): "U64",
    np.dtype(np.uint32): "U32",
    np.dtype(np.uint16): "U16",
    np.dtype(np.uint8): "U8",
    np.dtype(np.bool_): "BOOL",
}
_DTYPES = {name: dtype for dtype, name in _DTYPE_NAMES.items()}


@dataclass(frozen=True)
class Container:
    """An engine file whose checksums hold.

    Attributes:
        header: the JSON header, without its digests.
        tensors: read-only arrays on the file's mapping; empty when only the header was read.
        sizes_bytes: of every tensor, by name.
    """

    header: dict[str, Any]
    tensors: dict[str, np.ndarray]
    sizes_bytes: dict[str, int]


def write_container(path: Path, header: Mapping[str, Any], tensors: Mapping[str, np.ndarray]) -> None:
    """Write an engine file wholly or not at all; it is on the disk when this returns.

    Raises:
        DeviceError: the path cannot be written or the disk is full.
        InternalError: the header is not JSON or too long, or a tensor has a type the format lacks.
    """
    table: dict[str, Any] = {}
    offset = 0
    ordered = sorted(tensors.items(), key=lambda item: -item[1].dtype.itemsize)
    for name, array in ordered:
        if array.dtype not in _DTYPE_NAMES:
            raise InternalError(
                f"an engine file cannot hold tensor '{name}'", got=f"element type {array.dtype}"
            )
        end = offset + array.nbytes
        table[name] = {
            "dtype": _DTYPE_NAMES[array.dtype],
            "shape": list(array.shape),
            "data_offsets": [offset, end],
        }
        offset = end
    unsigned = _header_bytes(header, _ZERO_DIGEST, table)
    with replace_file(path) as file:
        file.write(unsigned)
        for _, array in ordered:
            for chunk in stream_bytes(array):
                file.write(chunk)
        file.flush()
        digest = _digest_behind(Path(file.name), len(unsigned))
        file.seek(0)
        file.write(_header_bytes(header, digest, table))
        file.flush()
        os.fsync(file.fileno())


def open_container(path: Path, *, with_tensors: bool = True) -> Container:
    """Map an engine file and check it: both digests, and every tensor's type, shape and place.

    Args:
        with_tensors: False reads and checks the header alone, whatever the size of the rest.

    Raises:
        ModelError: the file is missing, not an engine, damaged, or of a newer format.
    """
    mapping = _map(path)
    raw = _raw_header(mapping, path)
    table, header = _verified_header(raw, path)
    _check_safetensors(path)
    sizes = {name: entry["data_offsets"][1] - entry["data_offsets"][0] for name, entry in table.items()}
    if not with_tensors:
        return Container(header, {}, sizes)
    data = np.frombuffer(mapping, np.uint8, offset=_LENGTH_BYTES + len(raw))
    digest = _sha256(data).hex() if header["format_version"] < _BLOCKS_SINCE else _digest_by_blocks(data)
    if digest != header["data_sha256"]:
        raise damaged(path, "its weights do not match their checksum")
    for name, entry in table.items():
        if entry["dtype"] not in _DTYPES:
            raise damaged(path, f"tensor '{name}' has element type {entry['dtype']}")
    return Container(header, {name: _view(data, entry) for name, entry in table.items()}, sizes)


def _digest_behind(path: Path, first: int) -> str:
    """The digest of a file's bytes from the one at `first` on, which were written just now."""
    return _digest_by_blocks(np.frombuffer(map_file(path), np.uint8)[first:])


def _digest_by_blocks(data: np.ndarray) -> str:
    """The digest of the digests of blocks, on all cores."""
    blocks = [data[first : first + _BLOCK_BYTES] for first in range(0, data.size, _BLOCK_BYTES)]
    with ThreadPoolExecutor(usable_cores()) as pool:  # hashlib computes without Python's lock
        digests = list(pool.map(_sha256, blocks))
    return hashlib.sha256(b"".join(digests)).hexdigest()


def _sha256(data: np.ndarray) -> bytes:
    digest = hashlib.sha256()
    for chunk in stream_bytes(data):
        digest.update(chunk)
    return digest.digest()


def _header_bytes(header: Mapping[str, Any], data_digest: str, table: Mapping[str, Any]) -> bytes:
    """Length and header, padded, with both digests in place."""
    fields = {"header_sha256": _ZERO_DIGEST, "data_sha256": data_digest, **header}
    try:
        text = json.dumps(fields, allow_nan=False, separators=(",", ":"))
    except (TypeError, ValueError) as error:
        raise InternalError("the header of an engine file is not JSON", got=str(error)) from error
    whole = {"__metadata__": {METADATA_KEY: text}, **table}
    raw = json.dumps(whole, ensure_ascii=False, separators=(",", ":")).encode("utf-8")
    raw += b" " * (-(len(raw) + _LENGTH_BYTES) % _ALIGNMENT)
    if len(raw) > MAX_HEADER_BYTES:
        raise InternalError(
            "the header of an engine file is too long",
            got=f"{len(raw)} bytes",
            expected=f"<= {MAX_HEADER_BYTES}",
        )
    signed = raw.replace(_ZERO_DIGEST.encode(), hashlib.sha256(raw).hexdigest().encode(), 1)
    return len(raw).to_bytes(_LENGTH_BYTES, "little") + signed


def _map(path: Path) -> mmap.mmap:
    if not path.is_file():
        raise missing(path)
    try:
        return map_file(path)
    except ValueError as error:
        raise foreign(path, b"") from error
    except OSError as error:
        raise ModelError(f"cannot open '{path}'", got=os.strerror(error.errno or 0)) from error


def _raw_header(mapping: mmap.mmap, path: Path) -> bytes:
    """The N header bytes, never more than the file and the format allow."""
    start = bytes(mapping[: _LENGTH_BYTES + len(_OPENING)])
    if not start[_LENGTH_BYTES:].startswith(_OPENING):
        raise foreign(path, start)
    length = int.from_bytes(start[:_LENGTH_BYTES], "little")
    if length > min(MAX_HEADER_BYTES, len(mapping) - _LENGTH_BYTES):
        raise damaged(path, f"a header of {length} bytes in a file of {len(mapping)}")
    return bytes(mapping[_LENGTH_BYTES : _LENGTH_BYTES + length])


def _verified_header(raw: bytes, path: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """The tensor table and the JSON header, once the header's own digest holds."""
    try:
        table = json.loads(raw)
        header = json.loads(table.pop("__metadata__")[METADATA_KEY])
        digest = header.pop("header_sha256")
        unsigned = raw.replace(digest.encode(), _ZERO_DIGEST.encode(), 1)
        version = header["format_version"]
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise damaged(path, "its header cannot be read") from error
    if hashlib.sha256(unsigned).hexdigest() != digest:
        raise damaged(path, "its header does not match its checksum")
    if not isinstance(version, int) or version > FORMAT_VERSION:
        raise ModelError(
            f"cannot read engine '{path}': it was made by a newer QuantRT",
            got=f"format {version}",
            expected=f"at most {FORMAT_VERSION}",
            hint="`pip install --upgrade quantrt`, or build it again with this one",
        )
    return table, header


def _check_safetensors(path: Path) -> None:
    """Let the format's own library check every type, shape and offset against the file's size."""
    try:
        with safetensors.safe_open(path, framework="np"):
            pass
    except (safetensors.SafetensorError, OSError) as error:
        raise damaged(path, str(error)) from error


def _view(data: np.ndarray, entry: Mapping[str, Any]) -> np.ndarray:
    """One tensor, on the mapping."""
    begin, end = entry["data_offsets"]
    dtype = _DTYPES[entry["dtype"]]
    if math.prod(entry["shape"]) == 0:
        return np.empty(entry["shape"], dtype)
    array: np.ndarray = data[begin:end].view(dtype).reshape(entry["shape"])
    return array
