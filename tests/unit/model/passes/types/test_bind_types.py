# SPDX-License-Identifier: Apache-2.0
"""Other element types at the edges of a graph."""

import numpy as np
import pytest

from quantrt.errors import UsageError
from quantrt.model.binding import Binding
from quantrt.model.passes.types.bind_types import bind_types, edge_scale
from tests.unit.model.check_pass import model_of, op_types, run

SCALE = 0.125
GRID = {"s": np.array(SCALE, np.float32), "z": np.array(0, np.int8)}


def values(rng) -> np.ndarray:
    return rng.standard_normal((2, 4, 6, 6)).astype(np.float32)


def codes(x: np.ndarray) -> np.ndarray:
    return np.clip(np.rint(x / np.float32(SCALE)), -128, 127).astype(np.int8)


def test_casts_are_at_the_edges(rng):
    model, x = model_of("h = Relu(x) y = Neg(h)"), values(rng)
    (want,) = run(model, {"x": x.astype(np.float16).astype(np.float32)})
    assert bind_types(model, {"x": Binding("float16"), "y": Binding("float16")}) == 2
    (got,) = run(model, {"x": x.astype(np.float16)})
    assert op_types(model) == ["Cast", "Relu", "Neg", "Cast"]
    np.testing.assert_array_equal(got, want.astype(np.float16))
    assert bind_types(model, {"x": Binding("float16")}) == 0


def test_bytes_and_whole_numbers_mean_themselves(rng):
    model = model_of("y = Add(x, x)", inputs="int64[2,3] x", outputs="int64[2,3] y")
    assert bind_types(model, {"x": Binding("int32"), "y": Binding("int32")}) == 2
    (got,) = run(model, {"x": np.arange(6, dtype=np.int32).reshape(2, 3)})
    assert got.dtype == np.int32
    np.testing.assert_array_equal(got, 2 * np.arange(6).reshape(2, 3))
    model = model_of("y = Relu(x)")
    bind_types(model, {"x": Binding("uint8")})
    pixels = rng.integers(0, 256, (2, 4, 6, 6)).astype(np.uint8)
    np.testing.assert_array_equal(run(model, {"x": pixels})[0], pixels.astype(np.float32))


def test_codes_have_a_scale(rng):
    model, x = model_of("y = Neg(x)"), values(rng)
    assert bind_types(model, {"x": Binding("int8", SCALE), "y": Binding("int8", SCALE)}) == 2
    assert op_types(model) == ["DequantizeLinear", "Neg", "QuantizeLinear"]
    (got,) = run(model, {"x": codes(x)})
    np.testing.assert_array_equal(got, codes(-codes(x) * np.float32(SCALE)))
    with pytest.raises(UsageError, match="needs the scale of its codes"):
        bind_types(model_of("y = Neg(x)"), {"x": Binding("int8")})


def test_codes_on_the_graphs_own_grid_go_straight_through(rng):
    body = "q = QuantizeLinear(x, s, z) d = DequantizeLinear(q, s, z) h = Neg(d) p = QuantizeLinear(h, s, z) "
    model, x = model_of(body + "y = DequantizeLinear(p, s, z)", weights=GRID), values(rng)
    assert edge_scale(model, "x") == edge_scale(model, "y") == SCALE
    (want,) = run(model, {"x": x})
    assert bind_types(model, {"x": Binding("int8", SCALE), "y": Binding("int8", SCALE)}) == 2
    assert op_types(model) == ["DequantizeLinear", "Neg", "QuantizeLinear"]
    (got,) = run(model, {"x": codes(x)})
    np.testing.assert_array_equal(got * np.float32(SCALE), want)


def test_codes_of_another_grid_are_converted(rng):
    body = "q = QuantizeLinear(x, s, z) y = DequantizeLinear(q, s, z)"
    model = model_of(body, weights=GRID)
    bind_types(model, {"x": Binding("int8", 2 * SCALE)})
    assert op_types(model) == ["DequantizeLinear", "QuantizeLinear", "DequantizeLinear"]
    (got,) = run(model, {"x": codes(values(rng))})
    assert np.abs(got).max() > 0


def test_a_graph_without_a_grid_at_its_edges():
    model = model_of("y = Relu(x)")
    assert edge_scale(model, "x") is None
    assert edge_scale(model, "y") is None
    assert edge_scale(model, "nothing") is None
    asymmetric = GRID | {"z": np.array(3, np.int8)}
    assert (
        edge_scale(model_of("y = QuantizeLinear(x, s, z)", outputs="int8[...] y", weights=asymmetric), "x")
        is None
    )


def test_an_input_that_is_an_output_keeps_its_type():
    model = model_of("y = Relu(x)", outputs="float[...] y, float[2,4,6,6] x")
    with pytest.raises(UsageError, match="it is an output too"):
        bind_types(model, {"x": Binding("float16")})
