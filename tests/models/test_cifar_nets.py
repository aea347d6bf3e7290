# SPDX-License-Identifier: Apache-2.0
"""The torch modules of the trained CIFAR-10 networks compute what their ONNX files do."""

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from benchmarks.nets.cifar_nets import NETS, load_cifar_net  # noqa: E402
from quantrt.ir.session import float_session  # noqa: E402
from quantrt.model.load import load_model  # noqa: E402


@pytest.mark.parametrize("name", NETS)
def test_outputs_are_those_of_the_file(name, shared_data, rng):
    path = shared_data(f"models/{name}.onnx")
    model = load_model(path)
    size = 64 if name == "cifar10_efficientvit_b0" else 32
    images = rng.normal(0, 1, (2, 3, size, size)).astype(np.float32)
    (wanted,) = float_session(model.graph, threads=1).run(None, {model.inputs[0].name: images})
    with torch.no_grad():
        got = load_cifar_net(path)(torch.from_numpy(images)).numpy()
    assert np.abs(got - wanted).max() < 1e-5 * np.abs(wanted).max()
