# SPDX-License-Identifier: Apache-2.0
"""What a pipeline sees of an engine: types, device, and the module behind it."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import nn

from quantrt.torch.diffusers.calls import CallForm, ResultForm
from quantrt.torch.diffusers.engine_module import EngineModule


class Doubler(nn.Module):
    config = "its configuration"

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(1))

    def forward(self, x, ids):
        return 2 * x


class Engine:
    """Says what it was given."""

    executor = None

    def __init__(self):
        self.inputs = (SimpleNamespace(name="x", dtype="float32"), SimpleNamespace(name="ids", dtype="int64"))
        self.given = {}

    def run(self, inputs):
        self.given = {name: (array.dtype.name, array.shape) for name, array in inputs.items()}
        return {"output": 2 * inputs["x"]}


class GpuEngine(Engine):
    """The same on a device."""

    def __init__(self, device: str):
        super().__init__()
        self.executor = SimpleNamespace(device=torch.device(device), run_device=self.run_device)
        self.tensors = {}

    def run_device(self, inputs):
        self.tensors = inputs
        return {"output": 2 * inputs["x"]}


def in_place_of_doubler(engine: Engine) -> EngineModule:
    args = (torch.ones(2, 3), torch.tensor(4))
    call = CallForm.of("unet", Doubler(), args, {})
    return EngineModule(engine, Doubler(), call, ResultForm.of(args[0]), torch.ones(1, dtype=torch.bfloat16))


@pytest.fixture
def module() -> EngineModule:
    return in_place_of_doubler(Engine())


def test_arguments_get_the_types_of_the_engine_and_results_those_of_the_pipeline(module: EngineModule):
    result = module(torch.full((5, 3), 1.5, dtype=torch.bfloat16), torch.tensor(4.0))
    assert module.engine.given == {"x": ("float32", (5, 3)), "ids": ("int64", (5,))}
    assert result.dtype == torch.bfloat16
    assert result.tolist() == np.full((5, 3), 3.0).tolist()


def test_moving_it_changes_what_the_pipeline_sees(module: EngineModule):
    assert (module.dtype, module.device.type) == (torch.bfloat16, "cpu")
    module.to(torch.float32)
    assert module(torch.ones(1, 3), torch.tensor(1)).dtype == torch.float32
    assert module.state_dict() == {}


def test_other_attributes_are_those_of_the_module(module: EngineModule):
    assert module.config == "its configuration"
    with pytest.raises(AttributeError):
        module.nothing_like_it  # noqa: B018


def test_tensors_on_the_engines_device_stay_there():
    module = in_place_of_doubler(GpuEngine("cpu"))
    x = torch.full((5, 3), 1.5, dtype=torch.bfloat16)
    assert module(x, torch.tensor(4)).tolist() == [[3.0] * 3] * 5
    assert module.engine.tensors["x"].data_ptr() == x.data_ptr()
    assert module.engine.tensors["ids"].tolist() == [4] * 5
    assert module.engine.given == {}


def test_tensors_elsewhere_pass_the_host():
    module = in_place_of_doubler(GpuEngine("meta"))
    assert module(torch.ones(1, 3), torch.tensor(4)).dtype == torch.bfloat16
    assert module.engine.tensors == {}
    assert module.engine.given == {"x": ("float32", (1, 3)), "ids": ("int64", (1,))}
