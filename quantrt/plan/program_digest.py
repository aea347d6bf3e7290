# SPDX-License-Identifier: Apache-2.0
"""What the model of a program computes with, as one digest: what is only told about it is not in it."""

from __future__ import annotations

import hashlib
import json
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from quantrt.ir.mapped import stream_bytes
from quantrt.plan.plan import LibraryModel
from quantrt.threads import usable_cores

__all__ = ["program_digest"]

NOTES = "notes"
"""What the graph of a program tells of how it came about, such as times of what was not chosen."""


def program_digest(model: LibraryModel) -> str:
    """SHA-256, in hexadecimal, of steps, options, weights, machine code and nodes; see `program_to_model`."""
    document = json.loads(model.graph)
    document.pop(NOTES, None)
    whole = hashlib.sha256(json.dumps(document, sort_keys=True).encode())
    names = sorted(model.weights)
    with ThreadPoolExecutor(usable_cores()) as pool:  # hashlib computes without Python's lock
        digests = pool.map(_digest, (model.weights[name] for name in names))
        for name, digest in zip(names, digests, strict=True):
            whole.update(name.encode() + b"\0" + digest)
    return whole.hexdigest()


def _digest(array: np.ndarray) -> bytes:
    own = hashlib.sha256(f"{array.dtype} {array.shape}\n".encode())
    for chunk in stream_bytes(array):
        own.update(chunk)
    return own.digest()
