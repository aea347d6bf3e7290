# SPDX-License-Identifier: Apache-2.0
"""Where tensor cores want codes of values of attention: the orders of kernels/attention_codes, in numpy."""

import numpy as np


def keys_in_order(keys: int) -> np.ndarray:
    """Which key lies at each place of a row of values; `keys` is a multiple of 16."""
    return np.arange(keys).reshape(-1, 2, 4, 2).swapaxes(1, 2).reshape(-1)


def columns_in_order(columns: int) -> np.ndarray:
    """Which column of v lies at each row of its codes, in the order "fragments"."""
    return np.arange(columns).reshape(4, -1, 2).swapaxes(0, 1).reshape(-1)
