# SPDX-License-Identifier: Apache-2.0
"""A numpy array as OpenVINO's tensor, on the same memory."""

from __future__ import annotations

import numpy as np
import openvino

__all__ = ["shared_tensor"]


def shared_tensor(array: np.ndarray) -> openvino.Tensor:
    """The array as the library's tensor, on the same memory when it is contiguous."""
    if not array.flags.c_contiguous:
        array = array.copy(order="C")
    if not array.flags.writeable:
        array = np.asarray(_Writable(array))
    return openvino.Tensor(array, shared_memory=True)


class _Writable:
    """Claims that a read-only array is writable, which the library asks for and does not use.

    It writes neither to its inputs nor to its constants: the constants of its own files are mapped read-only.
    """

    def __init__(self, array: np.ndarray) -> None:
        self._array = array
        address, _ = array.__array_interface__["data"]
        self.__array_interface__ = {**array.__array_interface__, "data": (address, False)}
