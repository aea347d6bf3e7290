# SPDX-License-Identifier: Apache-2.0
"""The program of an engine for a GPU as its file holds it: graph and machine code in one compressed stream.

    length of INDEX (8 bytes, little endian), INDEX, graph, machine code of one kernel after the other

INDEX is JSON: {"graph": bytes, "arrays": [[name, bytes], ...]}. Kernels of one family are nearly alike, so
that together they shrink to a sixth. Weights stay beside the stream, where they are mapped and not read.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from types import ModuleType

import numpy as np

from quantrt.errors import DeviceError
from quantrt.plan.plan import LibraryModel
from quantrt.plan.program_json import CUBIN, LIBRARY

__all__ = ["is_packed", "pack", "unpack"]

MAGIC = b"\xfd7zXZ\x00"
"""With which a stream of the .xz format begins; a graph that is not packed is JSON, and begins with "{"."""

MAX_UNPACKED_BYTES = 1 << 30
"""Of graph and machine code: what claims to be more is no engine."""

_LENGTH_BYTES = 8


def pack(model: LibraryModel) -> LibraryModel:
    """The program with its machine code in its graph, compressed; models of other libraries stay."""
    if model.library != LIBRARY or is_packed(model):
        return model
    codes = {name: array for name, array in model.weights.items() if name.startswith(CUBIN)}
    sizes = [[name, array.nbytes] for name, array in codes.items()]
    index = json.dumps({"graph": len(model.graph), "arrays": sizes}, separators=(",", ":")).encode()
    parts = [len(index).to_bytes(_LENGTH_BYTES, "little"), index, model.graph]
    stream = _lzma().compress(b"".join([*parts, *(array.tobytes() for array in codes.values())]))
    kept = {name: array for name, array in model.weights.items() if name not in codes}
    return LibraryModel(model.library, stream, kept)


def unpack(model: LibraryModel) -> LibraryModel:
    """The program that `pack` took; one that is not packed as it is.

    Raises:
        ValueError: the stream is damaged, or not one of `pack`.
        DeviceError: this Python cannot read it.
    """
    if not is_packed(model):
        return model
    data = _decompressed(model.graph)
    start = _LENGTH_BYTES + int.from_bytes(data[:_LENGTH_BYTES], "little")
    try:
        index = json.loads(data[_LENGTH_BYTES:start])
        sizes = [("", int(index["graph"])), *((str(name), int(size)) for name, size in index["arrays"])]
    except (KeyError, TypeError, RecursionError) as error:
        raise ValueError(f"its index is none ({type(error).__name__}: {error})") from error
    (_, graph), *codes = _split(data[start:], sizes)
    arrays = {name: np.frombuffer(code, np.uint8) for name, code in codes}
    return LibraryModel(model.library, graph, {**model.weights, **arrays})


def is_packed(model: LibraryModel) -> bool:
    """Whether the graph of a model is a stream of `pack`."""
    return model.library == LIBRARY and model.graph.startswith(MAGIC)


def _split(data: bytes, sizes: list[tuple[str, int]]) -> Iterator[tuple[str, bytes]]:
    """Parts of known sizes, one after the other, without rest."""
    if any(size < 0 for _, size in sizes) or sum(size for _, size in sizes) != len(data):
        raise ValueError("its parts are not as long as its index says")
    place = 0
    for name, size in sizes:
        yield name, data[place : place + size]
        place += size


def _decompressed(stream: bytes) -> bytes:
    lzma = _lzma()
    reader = lzma.LZMADecompressor(format=lzma.FORMAT_XZ)
    try:
        data: bytes = reader.decompress(stream, max_length=MAX_UNPACKED_BYTES)
    except lzma.LZMAError as error:
        raise ValueError(str(error)) from error
    if not reader.eof or reader.unused_data:
        raise ValueError("its compressed part is cut off, or does not end where it should")
    return data


def _lzma() -> ModuleType:
    # Python can be built without it, so it is imported where it is needed.
    try:
        import lzma
    except ImportError as error:
        raise DeviceError(
            "cannot read or write engines for a GPU: this Python was built without lzma",
            got=str(error),
            hint="a Python with liblzma",
        ) from error
    return lzma
