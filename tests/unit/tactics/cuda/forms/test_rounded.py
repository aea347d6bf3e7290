# SPDX-License-Identifier: Apache-2.0
"""float16 made of float32 by torch is numpy's, bit for bit, however the array lies."""

import numpy as np
import pytest

pytest.importorskip("torch", reason="torch rounds")

from quantrt.tactics.cuda.forms.rounded import rounded

ODD = (0.0, -0.0, np.inf, -np.inf, np.nan, 65504.0, 65519.0, 65520.0, 1e9, 2**-24, 2**-25, 3 * 2**-26, 1e-30)


def numbers(*shape: int) -> np.ndarray:
    found = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    found.reshape(-1)[: len(ODD)] = np.float32(ODD[: found.size])
    return found


VIEWS = {
    "as it is": lambda x: x,
    "transposed": lambda x: x.T,
    "channels last": lambda x: np.moveaxis(x.reshape(6, 4, 2, 8), 1, -1),
    "a slice": lambda x: x[:, ::2],
    "one row": lambda x: x[:1].T,
    "repeated": lambda x: np.broadcast_to(x[0], (3, 64)),
    "empty": lambda x: x[:0],
    "a number": lambda x: x[0, 0],
}


@pytest.mark.parametrize("is_writeable", [True, False])
@pytest.mark.parametrize("view", VIEWS)
def test_it_is_what_numpy_makes(view: str, is_writeable: bool):
    whole = numbers(6, 64)
    whole.flags.writeable = is_writeable
    array = np.asarray(VIEWS[view](whole))
    with np.errstate(over="ignore"):
        want = np.ascontiguousarray(array.astype(np.float16)).reshape(array.shape)
    found = rounded(array, "float16")
    assert found.flags.c_contiguous
    assert (found.dtype, found.shape) == (np.float16, array.shape)
    is_number = ~np.isnan(array)
    np.testing.assert_array_equal(np.isnan(found), ~is_number)
    np.testing.assert_array_equal(found[is_number].view(np.uint16), want[is_number].view(np.uint16))


@pytest.mark.parametrize(
    ("made", "wanted"), [("float32", "float32"), ("int8", "float16"), ("float16", "float16")]
)
def test_others_stay(made: str, wanted: str):
    array = np.ones((2, 3), made)
    assert rounded(array, wanted) is array
