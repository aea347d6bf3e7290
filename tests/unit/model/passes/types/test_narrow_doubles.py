# SPDX-License-Identifier: Apache-2.0
"""Models whose products are of doubles are computed in float32; other doubles stay."""

import numpy as np
import onnx_ir as ir

from quantrt.model.passes.types.narrow_doubles import doubles_of, narrow_doubles
from quantrt.quantize.placement.placement import place
from quantrt.quantize.targets.openvino import OPENVINO
from tests.nets import net
from tests.unit.model.check_pass import model_of, run

TEXT = "net (double[N,6] x) => (double[N,6] y, int64[N] k) { m = MatMul(x, w) r = Relu(m) y = Add(r, b) k = ArgMax<axis=1, keepdims=0>(y) }"  # noqa: E501


def test_a_model_of_doubles_is_quantized(rng):
    weights = {"w": rng.standard_normal((6, 6)), "b": np.array([1e300, -1e300, 0, 1, 2, 3])}
    model = net(TEXT, weights)
    assert model.notes == ("'x', 'y', 'MatMul_0' (MatMul): float64 in the file, float32 in engines",)
    assert [spec.dtype for spec in (*model.inputs, *model.outputs)] == ["float32", "float32", "int64"]
    assert place(model.graph, OPENVINO).weights.keys() == {("MatMul_0", 1)}
    x = rng.standard_normal((5, 6))
    y, k = run(model.graph, {"x": x.astype(np.float32)})
    want = np.maximum(x @ weights["w"], 0) + weights["b"]
    assert y.dtype == np.float32
    np.testing.assert_allclose(y[:, 2:], want[:, 2:], rtol=1e-5, atol=1e-5)
    # Beyond the range of float32 stands its end.
    np.testing.assert_allclose(np.abs(y[:, :2]), np.finfo(np.float32).max)
    assert (k == 0).all()


def test_sizes_that_are_computed_in_doubles_stay(rng):
    """A third of 96 is 32 in float64; whoever cuts numbers off sees what float32 loses."""
    body = (
        "s = Shape<start=2, end=3>(x) d = Cast<to=11>(s) t = Mul(d, third) f = Floor(t) c = Cast<to=7>(f) "
        "r = ReduceMean<axes=[2], keepdims=0>(x) m = MatMul(r, w) y = Expand(m, c)"
    )
    weights = {"third": np.array([1 / 3]), "w": np.eye(4, 1, dtype=np.float32)}
    graph = model_of(body, inputs="float[1,4,96] x", weights=weights)
    assert doubles_of(graph) == ()
    assert narrow_doubles(graph) == 0
    assert graph.graph.initializers["third"].dtype == ir.DataType.DOUBLE
    assert run(graph, {"x": np.ones((1, 4, 96), np.float32)})[0].shape == (1, 32)


def test_places_that_are_computed_in_doubles_stay():
    """As in position embeddings: a product of counted numbers and frequencies."""
    body = 'r = Range(a, n, d) e = Einsum<equation="i,j->ij">(r, f) c = Cast<to=1>(e) y = MatMul(x, c)'
    weights = {"a": np.array(0.0), "n": np.array(4.0), "d": np.array(1.0), "f": np.array([1.0, 0.1])}
    graph = model_of(body, inputs="float[2,4] x", weights=weights)
    assert doubles_of(graph) == ()
