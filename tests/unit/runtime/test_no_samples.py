# SPDX-License-Identifier: Apache-2.0
"""A run of no samples gives outputs of none in every library, or says what cannot be known without a run."""

from dataclasses import replace

import numpy as np
import pytest

from quantrt.errors import DataError
from quantrt.ir.tensor_spec import TensorSpec
from quantrt.runtime.engine import Engine
from tests.plans import LIBRARIES, make_plan

libraries = pytest.mark.parametrize("library", LIBRARIES)

POOL = "net (float[N,3,8,8] x) => (float[N,3,4,4] y) { y = MaxPool<kernel_shape=[2,2],strides=[2,2]>(x) }"
"""OpenVINO refuses it of no samples."""

TWO = """net (float[N,4] x, int64[N] rows) => (float[N,4] y, float[1,4] sum) {
  y = Relu(x)
  sum = ReduceSum<keepdims=1>(x, axis)
}"""

CACHE = "net (float[N,P,4] past, float[N,1,4] x) => (float[N,T,4] all) { all = Concat<axis=1>(past, x) }"


@libraries
def test_no_samples_in_none_out(library: str):
    with Engine(make_plan(library, POOL)) as engine, engine.create_context() as context:
        for lane in (engine, context):
            (found,) = lane.run({"x": np.empty((0, 3, 8, 8), np.float32)}).values()
            assert (found.shape, found.dtype) == ((0, 3, 4, 4), np.float32)
            assert lane.run({"x": np.ones((2, 3, 8, 8), np.float32)})["y"].shape == (2, 3, 4, 4)


@libraries
def test_types_are_those_that_the_engine_tells(library: str):
    plan = make_plan(library, POOL)
    outputs = tuple(replace(spec, dtype="bfloat16") for spec in plan.outputs)
    with Engine(plan) as engine:
        engine.plan = replace(plan, outputs=outputs)
        found = engine.run({"x": np.empty((0, 3, 8, 8), np.float32)})["y"]
    assert found.dtype.name == "bfloat16"


@libraries
def test_an_output_that_has_values_all_the_same_is_computed(library: str):
    given = {"x": np.empty((0, 4), np.float32), "rows": np.empty(0, np.int64)}
    with Engine(make_plan(library, TWO, {"axis": np.array([0])})) as engine:
        found = engine.run(given)
    np.testing.assert_array_equal(found["sum"], np.zeros((1, 4)))
    assert found["y"].shape == (0, 4)


@libraries
def test_an_empty_cache_is_no_empty_batch(library: str):
    x = np.ones((2, 1, 4), np.float32)
    with Engine(make_plan(library, CACHE)) as engine:
        found = engine.run({"past": np.empty((2, 0, 4), np.float32), "x": x})
    np.testing.assert_array_equal(found["all"], x)


GRU = """net (float[N,T,4] x) => (float[N,U,3] y, float[N,3] last) {
  t = Transpose<perm=[1,0,2]>(x)
  all, end = GRU<hidden_size=3>(t, w, r)
  a = Squeeze(all, one)
  y = Transpose<perm=[1,0,2]>(a)
  last = Squeeze(end, zero)
}"""
"""ONNX Runtime 1.32 ends the process where it has no samples."""


@libraries
def test_a_size_that_no_input_tells_is_that_of_a_run_of_one_sample(library: str):
    rng = np.random.default_rng(0)
    weights = {"w": (1, 9, 4), "r": (1, 9, 3)}
    made = {name: rng.standard_normal(shape).astype(np.float32) for name, shape in weights.items()}
    with Engine(make_plan(library, GRU, {**made, "one": np.array([1]), "zero": np.array([0])})) as engine:
        found = engine.run({"x": np.empty((0, 7, 4), np.float32)})
    assert {name: array.shape for name, array in found.items()} == {"y": (0, 7, 3), "last": (0, 3)}


@pytest.mark.parametrize("dims", [("N", 3, None, None), (None, 3, 4, 4), None])
def test_what_cannot_be_known_is_the_librarys_and_its_refusal_names_the_input(dims):
    """Without a name nobody knows whether the size of the output is that of the input."""
    plan = make_plan("openvino", POOL)
    inputs = (TensorSpec("x", "float32", (None, 3, 8, 8)),)
    with Engine(replace(plan, inputs=inputs, outputs=(TensorSpec("y", "float32", dims),))) as engine:
        with pytest.raises(DataError, match="cannot run input 'x' without a value in it") as caught:
            engine.run({"x": np.empty((0, 3, 8, 8), np.float32)})
    assert caught.value.got == "[0, 3, 8, 8]"
    assert "with one value or more" in (caught.value.expected or "")
