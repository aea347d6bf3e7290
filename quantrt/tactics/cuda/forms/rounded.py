# SPDX-License-Identifier: Apache-2.0
"""Weights rounded to float16 by torch, which uses the processor's own conversion.

numpy's takes several times as long on a core, and a build for a GPU rounds all weights of a model.
"""

from __future__ import annotations

import numpy as np
import torch

from quantrt.runtime.cuda.tensors import tensor_on

__all__ = ["rounded"]


def rounded(array: np.ndarray, dtype: str) -> np.ndarray:
    """A float32 array as float16, C-contiguous, where `dtype` says so; any other as it is.

    Half to even, as numpy rounds; what is too large becomes infinite.
    """
    if dtype != "float16" or array.dtype != np.float32:
        return array
    order = sorted(range(array.ndim), key=lambda axis: -array.strides[axis])
    back = sorted(range(array.ndim), key=order.__getitem__)
    halves = tensor_on(array.transpose(order)).to(torch.float16).permute(back).contiguous()
    found: np.ndarray = halves.numpy()
    return found
