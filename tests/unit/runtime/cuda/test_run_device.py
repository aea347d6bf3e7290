# SPDX-License-Identifier: Apache-2.0
"""Engines that take and give tensors on their own device, for which the CPU stands in."""

from collections.abc import Iterator

import numpy as np
import pytest
import torch

from quantrt.errors import DataError, UsageError
from quantrt.ir.tensor_spec import TensorSpec
from quantrt.plan.program_json import program_to_model
from quantrt.runtime.engine import Engine
from tests.gpu_stand_in import stand_in_for_gpu
from tests.plans import make_plan
from tests.programs import cuda_plan, pooled_program, pooled_reference


@pytest.fixture
def engine() -> Iterator[Engine]:
    inputs = (TensorSpec("x", "float16", ("N", 2, 4, 4)),)
    plan = cuda_plan(model=program_to_model(pooled_program("float16")), inputs=inputs)
    with stand_in_for_gpu(), Engine(plan) as found:
        yield found


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32])
def test_tensors_in_tensors_out(engine: Engine, dtype: torch.dtype, rng):
    x = rng.standard_normal((3, 2, 4, 4)).astype(np.float16)
    y = engine.run_device({"x": torch.from_numpy(x).to(dtype)})["y"]
    assert isinstance(y, torch.Tensor)
    np.testing.assert_allclose(y.numpy(), pooled_reference(x), rtol=0, atol=2e-3)


@pytest.mark.parametrize(
    ("inputs", "text"),
    [
        ({"x": torch.zeros(1, 2, 4, 5)}, "5 instead of 4 on axis 3"),
        ({"z": torch.zeros(1, 2, 4, 4)}, "no input 'z'"),
        ({}, "'x' was not given"),
        ({"x": torch.zeros(1, 2, 4, 4, device="meta")}, "not on the engine's device"),
    ],
)
def test_what_does_not_fit_is_named(engine: Engine, inputs: dict, text: str):
    with pytest.raises(DataError, match=text):
        engine.run_device(inputs)


def test_an_engine_of_a_cpu_takes_arrays():
    with (
        Engine(make_plan("onnxruntime")) as engine,
        pytest.raises(UsageError, match="not for a GPU"),
    ):
        engine.run_device({})


def test_a_context_gives_tensors_to_put_inputs_into(engine: Engine, rng):
    x = rng.standard_normal((3, 2, 4, 4)).astype(np.float16)
    with engine.create_context() as context:
        inputs = context.device_inputs({"x": (3, 2, 4, 4)})
        inputs["x"].copy_(torch.from_numpy(x))
        y = context.run_device(inputs, copies=False)["y"]
        np.testing.assert_allclose(y.numpy(), pooled_reference(x), rtol=0, atol=2e-3)
        with pytest.raises(DataError, match="5 instead of 4 on axis 3"):
            context.device_inputs({"x": (1, 2, 4, 5)})
        with pytest.raises(DataError, match="no input 'z'"):
            context.run_device({"z": inputs["x"]})
    with pytest.raises(UsageError, match="context .* is closed"):
        context.device_inputs({"x": (3, 2, 4, 4)})


def test_a_context_of_a_cpu_takes_arrays():
    with (
        Engine(make_plan("onnxruntime")) as engine,
        engine.create_context() as context,
        pytest.raises(UsageError, match="not for a GPU"),
    ):
        context.device_inputs({"x": (1, 32)})


def test_no_samples_give_outputs_of_none(engine: Engine):
    empty = {"x": torch.zeros(0, 2, 4, 4)}
    with engine.create_context() as context:
        for found in (
            engine.run_device(empty),
            context.run_device(empty),
            context.run_device(empty, copies=False),
        ):
            [y] = found.values()
            assert (tuple(y.shape), y.dtype) == ((0, 8), torch.float32)


def test_what_has_no_values_lies_on_the_device_too(engine: Engine):
    with pytest.raises(DataError, match="not on the engine's device"):
        engine.run_device({"x": torch.zeros(0, 2, 4, 4, device="meta")})
