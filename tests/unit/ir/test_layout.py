# SPDX-License-Identifier: Apache-2.0
"""Layouts: shapes and arrays there and back, and what cannot have one."""

import numpy as np
import pytest

from quantrt.errors import UsageError
from quantrt.ir.layout import LAYOUTS, layout_named


@pytest.mark.parametrize("layout", LAYOUTS, ids=lambda row: row.name)
def test_there_and_back(layout, rng):
    x = rng.standard_normal((2, 64, *range(3, 3 + layout.spatial))).astype(np.float32)
    memory = layout.to_memory_array(x)
    assert memory.shape == layout.memory_shape(x.shape)
    assert memory.flags.c_contiguous
    assert layout.model_shape(memory.shape) == x.shape
    np.testing.assert_array_equal(layout.to_model_array(memory), x)


def test_what_lies_side_by_side(rng):
    x = rng.standard_normal((1, 8, 2, 3)).astype(np.float32)
    np.testing.assert_array_equal(layout_named("nhwc").to_memory_array(x)[0, 1, 2], x[0, :, 1, 2])
    np.testing.assert_array_equal(layout_named("NCHW4").to_memory_array(x)[0, 1, 1, 2], x[0, 4:, 1, 2])


def test_symbols_stay():
    assert layout_named("nhwc").memory_shape(("N", 3, "h", None)) == ("N", "h", None, 3)
    assert layout_named("nchw4").memory_shape(("N", 8, 5, "w")) == ("N", 2, 5, "w", 4)
    assert layout_named("nchw") is layout_named("linear") is None


@pytest.mark.parametrize(
    ("name", "shape", "message"),
    [
        ("nhwc", (1, 3, 8), "3 axes cannot be nhwc"),
        ("nchw4", (1, 3, 8, 8), "3 channels cannot be nchw4: nothing is padded"),
        ("nchw4", (1, "C", 8, 8), "C channels cannot be nchw4"),
    ],
)
def test_what_has_no_such_layout(name: str, shape, message: str):
    with pytest.raises(UsageError, match=message):
        layout_named(name).memory_shape(shape)


def test_an_unknown_layout_is_told_the_nearest():
    with pytest.raises(UsageError) as caught:
        layout_named("nwhc")
    assert caught.value.hint == "'nhwc'"
