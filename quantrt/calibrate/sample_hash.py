# SPDX-License-Identifier: Apache-2.0
"""A hash of a multiset of samples: independent of order and batches, additive when parts are merged."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

__all__ = ["EMPTY_HASH", "add_hashes", "hash_sample"]

MODULUS = 1 << 256
EMPTY_HASH = "0" * 64


def hash_sample(inputs: Mapping[str, npt.NDArray[np.generic]]) -> str:
    """Hexadecimal SHA-256 of one sample: names, element types, shapes and bytes of its arrays."""
    digest = hashlib.sha256()
    for name in sorted(inputs):
        array = np.ascontiguousarray(inputs[name])
        digest.update(f"{name}\0{array.dtype.str}\0{array.shape}\0".encode())
        if array.dtype.hasobject:
            digest.update("\0".join(str(item) for item in array.flat).encode())
        else:
            digest.update(array.reshape(-1).view(np.uint8).data)
    return digest.hexdigest()


def add_hashes(first: str, second: str) -> str:
    """The hash of two multisets together: their sum modulo 2**256.

    This is AdHash (Bellare and Micciancio, Eurocrypt 1997, section 5). It tells data sets apart; it is no
    defence against somebody who searches for two sets with the same sum.
    """
    return f"{(int(first, 16) + int(second, 16)) % MODULUS:064x}"
