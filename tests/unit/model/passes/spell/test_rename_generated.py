# SPDX-License-Identifier: Apache-2.0
"""A model that ONNX Runtime has optimized in part is optimized again."""

import numpy as np
import pytest

from quantrt.errors import ModelError
from quantrt.ir.session import float_session
from quantrt.model.passes.spell.rename_generated import rename_generated
from tests.unit.model.check_pass import model_of, run


def test_generated_names_are_free_again(rng):
    """Shapes alike, of fusions that were made; ONNX Runtime merges them, and makes two more of the kind."""
    body = (
        "a = Reshape(x, gemm_input_shape_token_0) b = Gemm(a, w, o) "
        "c = Reshape(b, gemm_output_shape_token_1) "
        "d = Reshape(c, gemm_input_shape) e = Gemm(d, w, o) f = Reshape(e, gemm_output_shape) "
        "g = MatMul(f, w) h = Add(g, o) i = MatMul(h, w) y = Add(i, o)"
    )
    shapes = {"gemm_input_shape_token_0": [8, 8], "gemm_input_shape": [8, 8]}
    shapes |= {"gemm_output_shape_token_1": [2, 4, 8], "gemm_output_shape": [2, 4, 8]}
    weights = {name: np.array(shape) for name, shape in shapes.items()}
    weights |= {"w": rng.standard_normal((8, 8)).astype(np.float32), "o": np.ones(8, np.float32)}
    graph = model_of(body, inputs="float[2,4,8] x", outputs="float[2,4,8] y", weights=weights)
    feeds = {"x": rng.standard_normal((2, 4, 8)).astype(np.float32)}
    (want,) = run(graph, feeds)
    with pytest.raises(ModelError, match="cannot load the model") as error:
        float_session(graph)
    assert "Attempt to replace the existing tensor" in error.value.got
    assert rename_generated(graph) == 4
    assert set(graph.graph.initializers) == {"w", "o", *(f"{name}.given" for name in shapes)}
    (got,) = float_session(graph).run(None, feeds)
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4)
    assert rename_generated(graph) == 0
