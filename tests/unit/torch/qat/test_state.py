# SPDX-License-Identifier: Apache-2.0
"""A state that was saved is the whole of what training changed, whatever the next start is calibrated on."""

import numpy as np
import pytest
import torch

from quantrt.errors import UsageError
from quantrt.torch.qat import convert, prepare
from tests.unit.torch.qat import nets


def zero_points(prepared):
    return [int(module.grid.zero_point.reshape(-1)[0]) for _, module in prepared.quantizers()]


def constants(model):
    return {name: value.const_value.numpy() for name, value in model.graph.initializers.items()}


@pytest.fixture
def trained(made):
    """A prepared transformer after a step, with other scales and weights."""
    prepared = made("transformer", "ort")
    optimizer = torch.optim.Adam(prepared.parameters(), lr=1e-3)
    prepared(nets.ids(4, 5)).square().mean().backward()
    optimizer.step()
    return prepared.eval()


def test_a_state_goes_into_a_module_that_was_calibrated_on_other_samples(trained, tmp_path):
    torch.save(trained.state_dict(), tmp_path / "state.pt")
    other = prepare(nets.transformer(), nets.ids(4, 2), [nets.ids(8, 11)], target="ort")
    assert zero_points(other) != zero_points(trained)
    other.load_state_dict(torch.load(tmp_path / "state.pt"))
    assert zero_points(other) == zero_points(trained)
    ids = nets.ids(6, 8)
    with torch.no_grad():
        assert torch.equal(other.eval()(ids), trained(ids))
    wanted, found = constants(convert(trained)), constants(convert(other))
    assert wanted.keys() == found.keys()
    for name, array in wanted.items():
        np.testing.assert_array_equal(found[name], array, err_msg=name)


def test_gradients_of_scales_are_those_of_the_state(trained):
    other = prepare(nets.transformer(), nets.ids(4, 2), [nets.ids(8, 11)], target="ort")
    other.load_state_dict(trained.state_dict())
    gradients = []
    for module in (trained, other):
        module.zero_grad()
        module(nets.ids(4, 9)).square().mean().backward()
        gradients.append([scale.ratio.grad for _, scale in module.quantizers()])
    assert all(torch.equal(a, b) for a, b in zip(*gradients, strict=True))


def test_a_state_of_another_target_is_refused(trained, made):
    with pytest.raises(UsageError, match="codes are of another target") as caught:
        made("transformer", "tensorrt").load_state_dict(trained.state_dict(), strict=False)
    assert caught.value.got == "codes from 0 to 255" and caught.value.expected == "-128 to 127"
