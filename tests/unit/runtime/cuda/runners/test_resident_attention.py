# SPDX-License-Identifier: Apache-2.0
"""What the runner of attention that reads keys and values once hands to its kernel, which attends here."""

import types
from dataclasses import replace

import pytest
import torch

from quantrt.errors import DataError
from quantrt.kernels.attention.spec import AttentionProblem
from quantrt.kernels.attention_resident.spec import ResidentTile, kernel_of
from quantrt.plan.program import Step
from quantrt.regions.region import Attention
from quantrt.runtime.cuda.attend import attend
from quantrt.runtime.cuda.runner import Assets
from quantrt.runtime.cuda.runners.resident_attention import open_runner, rounds_of
from tests.unit.runtime.cuda.runners.test_hopper_attention import allocate, drawn

CPU = torch.device("cpu")
PROGRAMS = 3
FORMULA = Attention((("n", 0), ("n", 1), ("n", 2)), 0.25, False, False)
MASKED = replace(FORMULA, has_mask=True)


class Launcher:
    """Attends; keeps what it is given."""

    def __init__(self, spec):
        self.spec, self.launches = spec, []

    def __call__(self, grid, arguments):
        named = dict(zip((name for name, _ in self.spec.signature), arguments, strict=True))
        self.launches.append((grid, named))
        y = named["y0_ptr"]
        assert tuple(y.shape[:3]) == (named["B"], named["H"], named["S"])
        tensors = [named["q_ptr"], named["k_desc"], named["v_desc"]]
        if "mask_desc" in named:
            mask = named["mask_desc"][..., : named["T"]]
            assert [int(size > 1) for size in mask.shape[:2]] == [named["mask_b"], named["mask_h"]]
            assert all(stride % 8 == 0 for stride in named["mask_desc"].stride()[:3])
            y.copy_(attend(MASKED, [*tensors, mask], {}))
        else:
            y.copy_(attend(FORMULA, tensors, {}))


@pytest.fixture(autouse=True)
def few_multiprocessors(monkeypatch):
    facts = types.SimpleNamespace(multi_processor_count=PROGRAMS)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: facts)


def opened(*, mask="none", has_rows=False, unit=1, weights=None):
    problem = AttentionProblem(
        2, 4, 300, 40, 1, 32, "float16", 8, mask, "float16" if mask != "none" else "", unit, has_rows, False,
        FORMULA.epilogue, ("float16",),
    )  # fmt: skip
    launcher = Launcher(kernel_of(problem, ResidentTile(2, 64, 4)))
    options = {
        "scale": FORMULA.scale,
        "is_transposed": False,
        "mask_value": 0.0,
        "dtype": "float16",
        "scalars": [],
        "outputs": ["float16"],
    }
    step = Step(
        "resident_attention", "region", ("q", "k", "v"), ("y",), options, tuple(weights or ()), ("k",)
    )
    return open_runner(step, Assets(CPU, weights or {}, {"k": launcher})), launcher


def operands():
    return [drawn(2, length, 4, 32).transpose(1, 2) for length in (300, 40, 41)][:2] + [
        drawn(2, 40, 4, 32).transpose(1, 2) + 1
    ]


def test_tensors_are_handed_on_as_they_lie():
    runner, launcher = opened()
    q, k, v = operands()
    (y,) = runner.run([q, k[:, :, :40], v], allocate)
    torch.testing.assert_close(y, attend(FORMULA, [q, k, v], {}).half(), rtol=0, atol=0)
    assert y.stride() == q.stride()
    ((grid, named),) = launcher.launches
    assert grid == (PROGRAMS, 1, 1)
    assert named["q_ptr"].data_ptr() == q.data_ptr()
    assert [named[name] * 8 for name in ("q_b", "q_h", "q_s")] == list(q.stride()[:3])
    assert named["rounds"] == 1
    assert named["scale"] == pytest.approx(0.25 / torch.log(torch.tensor(2.0)).item())


@pytest.mark.parametrize(
    "shape", [(2, 1, 1, 40), (1, 4, 1, 40), (40,), (2, 1, 300, 40), (1, 1, 300, 40), (2, 4, 300, 1)]
)
def test_masks_are_as_wide_as_they_are(shape):
    has_rows = len(shape) > 2 and shape[2] > 1
    runner, launcher = opened(mask="added", has_rows=has_rows, unit=8)
    inputs = [*operands(), drawn(*shape)]
    (y,) = runner.run(inputs, allocate)
    torch.testing.assert_close(y, attend(MASKED, inputs, {}).half(), rtol=0, atol=0)
    ((_, named),) = launcher.launches
    assert named["mask_desc"].shape[2] == (300 if has_rows else 1)


def test_what_is_repeated_is_narrow_or_stored():
    runner, launcher = opened(mask="added", has_rows=True, unit=8)
    row = drawn(1, 1, 1, 40)
    inputs = [*operands(), row.expand(2, 4, 300, 40)]
    (y,) = runner.run(inputs, allocate)
    torch.testing.assert_close(y, attend(MASKED, inputs, {}).half(), rtol=0, atol=0)
    ((_, named),) = launcher.launches
    assert named["mask_desc"].shape == (1, 1, 300, 40)
    assert named["mask_desc"].stride(2) == 40


def test_a_constant_mask_is_read_from_the_weights():
    mask = drawn(1, 1, 1, 48)
    runner, _ = opened(mask="added", unit=16, weights={"m": mask})
    inputs = operands()
    (y,) = runner.run(inputs, allocate)
    torch.testing.assert_close(y, attend(MASKED, [*inputs, mask[..., :40]], {}).half(), rtol=0, atol=0)


def test_no_queries_no_keys_and_a_mask_that_does_not_fit():
    runner, launcher = opened()
    q, k, v = operands()
    assert runner.run([q[:, :, :0], k, v], allocate)[0].shape == (2, 4, 0, 32)
    assert not runner.run([q, k[:, :, :0], v[:, :, :0]], allocate)[0].any()
    assert not launcher.launches
    runner, _ = opened(mask="added", unit=8)
    with pytest.raises(DataError, match="region"):
        runner.run([q, k, v, drawn(2, 1, 300, 40)], allocate)


@pytest.mark.parametrize(
    ("heads", "all_rounds", "expected"), [(512, 2, 2), (40, 6, 2), (20, 32, 1), (132, 4, 4), (1, 1, 1)]
)
def test_units_are_as_long_as_costs_nothing(heads, all_rounds, expected):
    assert rounds_of(heads, all_rounds, 132) == expected
