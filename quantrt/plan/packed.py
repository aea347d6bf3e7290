# SPDX-License-Identifier: Apache-2.0
"""The model of an engine as its file holds it: all but large weights in one compressed stream.

    length of INDEX (8 bytes, little endian), INDEX, graph, one array after the other

INDEX is JSON: {"graph": bytes, "arrays": [[name, element type as numpy writes it, shape], ...]}. Kernels of
one family are nearly alike, so that together they shrink to a sixth, and the text of an OpenVINO model to a
thirtieth; scales and biases of small layers would each take a line of the file's table. Larger weights stay
beside the stream, mapped and not read; those of a model that is small as a whole are in it too.
"""

from __future__ import annotations

import json
import logging
import math
from collections.abc import Iterator
from types import ModuleType

import numpy as np

from quantrt.errors import DeviceError
from quantrt.plan.plan import LibraryModel
from quantrt.plan.program_json import CUBIN, LIBRARY, PLAN

__all__ = ["MAGIC", "is_packed", "pack", "unpack"]

log = logging.getLogger(__name__)

PLAIN_KINDS = "biuf"
"""Element types that numpy knows by itself: truths, integers, floats."""

MAGIC = b"\xfd7zXZ\x00"
"""With which a stream of the .xz format begins; a graph that is not packed is JSON, XML or a protobuf."""

MAX_UNPACKED_BYTES = 1 << 30
"""Of graph and machine code: what claims to be more is no engine."""

MAX_WORKING_BYTES = 1 << 26
"""That reading a stream may take beside its result: `pack` asks for 9 MB, a header could for 4 GB."""

SMALL_BYTES = 16384
"""Of weights, up to which they are in the stream."""

SMALL_MODEL_BYTES = 1 << 20
"""Of all weights of a model for a CPU, up to which they are in the stream: int8 codes shrink by a tenth to a
fifth, which takes a second per megabyte."""

LARGE_RATIO = 64
"""Of weights beside the stream, in its bytes: from there on a few percent of it are not worth seconds."""

QUICK = 3
"""Level of compression there: a quarter of the default's time, for 4 % more of a graph (SDXL's UNet)."""

ALIGNMENT = 64
"""Of weights in memory: a cache line, and the widest vector register."""

_LENGTH_BYTES = 8


def pack(model: LibraryModel) -> LibraryModel:
    """The model with machine code and small weights in its graph, compressed.

    One for a CPU stays as it is where this Python cannot compress: it takes more space, and is as good.
    """
    if is_packed(model):
        return model
    try:
        lzma = _lzma()
    except DeviceError as error:
        if model.library == LIBRARY:
            raise
        log.warning("the engine is not compressed: %s", error.got)
        return model
    inside = _inside(model)
    rows = [[name, array.dtype.str, list(array.shape)] for name, array in inside.items()]
    index = json.dumps({"graph": len(model.graph), "arrays": rows}, separators=(",", ":")).encode()
    parts = [len(index).to_bytes(_LENGTH_BYTES, "little"), index, model.graph]
    data = b"".join([*parts, *(array.tobytes() for array in inside.values())])
    kept = {name: array for name, array in model.weights.items() if name not in inside}
    is_small_part = sum(array.nbytes for array in kept.values()) >= LARGE_RATIO * len(data)
    stream = lzma.compress(data, preset=QUICK if is_small_part else None)
    return LibraryModel(model.library, stream, kept)


def unpack(model: LibraryModel) -> LibraryModel:
    """The model that `pack` took; one that is not packed as it is.

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
        graph_bytes = int(index["graph"])
        rows = [
            (str(name), np.dtype(str(kind)), tuple(map(int, dims))) for name, kind, dims in index["arrays"]
        ]
    except (KeyError, TypeError, RecursionError) as error:
        raise ValueError(f"its index is none ({type(error).__name__}: {error})") from error
    if any(kind.kind not in PLAIN_KINDS or min(dims, default=0) < 0 for _, kind, dims in rows):
        raise ValueError("its index has arrays of another kind than numbers")
    sizes = [graph_bytes, *(kind.itemsize * math.prod(dims) for _, kind, dims in rows)]
    graph, *contents = _split(data[start:], sizes)
    pairs = zip(rows, contents, strict=True)
    arrays = {name: _aligned(part).view(kind).reshape(dims) for (name, kind, dims), part in pairs}
    return LibraryModel(model.library, graph, {**model.weights, **arrays})


def is_packed(model: LibraryModel) -> bool:
    """Whether the graph of a model is a stream of `pack`."""
    return model.graph.startswith(MAGIC)


def _inside(model: LibraryModel) -> dict[str, np.ndarray]:
    """The weights that are in the stream."""
    is_small = sum(array.nbytes for array in model.weights.values()) <= SMALL_MODEL_BYTES
    most = SMALL_BYTES if model.library == LIBRARY or not is_small else SMALL_MODEL_BYTES
    return {
        name: array
        for name, array in model.weights.items()
        if name.startswith((CUBIN, PLAN)) or (array.nbytes <= most and array.dtype.kind in PLAIN_KINDS)
    }


def _aligned(part: bytes) -> np.ndarray:
    """Read-only memory of these bytes that begins on a cache line, as it does in a file."""
    memory = np.empty(len(part) + ALIGNMENT, np.uint8)
    start = -memory.ctypes.data % ALIGNMENT
    found: np.ndarray = memory[start : start + len(part)]
    found[:] = np.frombuffer(part, np.uint8)
    found.flags.writeable = False
    return found


def _split(data: bytes, sizes: list[int]) -> Iterator[bytes]:
    """Parts of known sizes, one after the other, without rest."""
    if min(sizes) < 0 or sum(sizes) != len(data):
        raise ValueError("its parts are not as long as its index says")
    place = 0
    for size in sizes:
        yield data[place : place + size]
        place += size


def _decompressed(stream: bytes) -> bytes:
    lzma = _lzma()
    reader = lzma.LZMADecompressor(format=lzma.FORMAT_XZ, memlimit=MAX_WORKING_BYTES)
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
            "cannot read or write compressed engines: this Python was built without lzma",
            got=str(error),
            hint="a Python with liblzma",
        ) from error
    return lzma
