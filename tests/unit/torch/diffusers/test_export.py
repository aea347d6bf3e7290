# SPDX-License-Identifier: Apache-2.0
import numpy as np
import pytest
import torch
from torch import nn

from quantrt.errors import ModelError
from quantrt.model.load import load_model
from quantrt.torch.diffusers.calls import CallForm, ResultForm
from quantrt.torch.diffusers.export import export_module
from tests.nets import run_ort


class Scaled(nn.Module):
    def __init__(self, *, depends_on_values: bool):
        super().__init__()
        self.layer = nn.Linear(4, 3)
        self.depends_on_values = depends_on_values

    def forward(self, x):
        if self.depends_on_values and x.sum() > 0:
            return self.layer(x)
        return 2 * self.layer(x)


def export(module: nn.Module, path) -> None:
    x = torch.ones(2, 4, dtype=torch.float16)
    call = CallForm.of("unet", module, (x,), {})
    export_module(module, call, ResultForm.of(x), {"x": x}, path)


def test_the_model_is_in_float32_and_the_module_as_it_was(tmp_path):
    module = Scaled(depends_on_values=False).half()
    export(module, tmp_path / "model.onnx")
    assert (module.layer.weight.dtype, module.training) == (torch.float16, False)
    model = load_model(tmp_path / "model.onnx")
    assert [spec.dtype for spec in model.inputs] == ["float32"]
    x = np.ones((5, 4), np.float32)
    want = module.float()(torch.from_numpy(x)).detach().numpy()
    np.testing.assert_allclose(run_ort(model.graph, {"x": x})[0], want, rtol=1e-5)


def test_a_module_that_cannot_be_exported_keeps_its_type(tmp_path):
    module = Scaled(depends_on_values=True).half()
    with pytest.raises(ModelError, match="cannot export 'unet' to ONNX"):
        export(module, tmp_path / "model.onnx")
    assert module.layer.weight.dtype == torch.float16
