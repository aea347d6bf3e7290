# SPDX-License-Identifier: Apache-2.0
"""Dimensions of the model and of memory."""

import numpy as np
import pytest

from quantrt.errors import UsageError
from quantrt.ir.tensor_spec import TensorSpec
from quantrt.trtexec.flags.dims import in_memory, in_model_order, model_shape
from quantrt.trtexec.flags.shapes import by_input
from quantrt.trtexec.inference.inputs import input_shapes
from quantrt.trtexec.reports.log import Log

HWC = TensorSpec("x", "float32", ("N", 8, "W", 3), layout="nhwc")
CHW4 = TensorSpec("y", "int8", ("N", 2, 5, 6, 4), 0.5, "nchw4")
ROWS = TensorSpec("z", "float32", (2, 3))


def test_there_and_back():
    for spec, shape, memory in (
        (HWC, (1, 3, 8, 9), (1, 8, 9, 3)),
        (CHW4, (2, 8, 5, 6), (2, 2, 5, 6, 4)),
        (ROWS, (2, 3), (2, 3)),
    ):
        assert in_memory(spec, shape) == memory
        assert model_shape(spec, memory) == shape


def test_shapes_are_given_in_the_models_order():
    assert by_input({"x": (1, 3, 8, 9), "z": (2, 3)}, (HWC, ROWS)) == {"x": (1, 8, 9, 3), "z": (2, 3)}
    assert input_shapes((HWC,), {"x": (1, 3, 8, 9)}, {}, Log()) == {"x": (1, 8, 9, 3)}
    with pytest.raises(UsageError, match="input 'x' cannot have shape 1x4x8x9"):
        input_shapes((HWC,), {"x": (1, 4, 8, 9)}, {}, Log())
    with pytest.raises(UsageError, match="3 axes cannot be nhwc"):
        by_input({"x": (3, 8, 9)}, (HWC,))


def test_arrays_in_the_models_order(rng):
    x, y = rng.standard_normal((1, 3, 2, 4)), rng.integers(0, 9, (1, 8, 5, 6))
    memory = {"x": x.transpose(0, 2, 3, 1), "y": y.reshape(1, 2, 4, 5, 6).transpose(0, 1, 3, 4, 2), "z": x}
    found = in_model_order((HWC, CHW4, ROWS), memory)
    np.testing.assert_array_equal(found["x"], x)
    np.testing.assert_array_equal(found["y"], y)
    assert found["z"] is x
