# SPDX-License-Identifier: Apache-2.0
"""What the runner of attention for compute capability 9.0 hands to its kernel: a launcher that attends."""

import types
from dataclasses import replace

import pytest
import torch

from quantrt.errors import DataError
from quantrt.kernels.attention.spec import AttentionProblem
from quantrt.kernels.attention_hopper.spec import HopperAttention, kernel_of
from quantrt.kernels.attention_short import spec as short
from quantrt.plan.program import Step
from quantrt.regions.region import Attention
from quantrt.runtime.cuda.reference.attend import attend
from quantrt.runtime.cuda.runner import Assets
from quantrt.runtime.cuda.runners.hopper_attention import open_runner

CPU = torch.device("cpu")
PROGRAMS = 3
FORMULA = Attention((("n", 0), ("n", 1), ("n", 2)), 0.25, False, False)
MASKED = replace(FORMULA, has_mask=True)
FLOATS = HopperAttention("floats", "floats", 64, 3)
SHORT = short.ShortAttention()
CODES = HopperAttention("int8", "fp8", 64, 3)
SCORE_CODES = HopperAttention("int8", "floats", 64, 3)
VALUE_CODES = HopperAttention("floats", "fp8", 64, 3)


class Launcher:
    """Attends where it is given floats; keeps what it is given."""

    def __init__(self, spec):
        self.spec, self.launches = spec, []

    def __call__(self, grid, arguments):
        named = dict(zip((name for name, _ in self.spec.signature), arguments, strict=True))
        self.launches.append((grid, named))
        y, unit = named["y0_ptr"], dict(self.spec.constants)["UNIT"]
        assert [step * unit for step in (named["y_b"], named["y_h"], named["y_s"])] == list(y.stride()[:3])
        assert tuple(y.shape[:3]) == (named["B"], named["H"], named["S"])
        if named["v_desc"].dtype == torch.float16 == named["q_desc"].dtype:
            tensors = [named["q_desc"], named["k_desc"], named["v_desc"]]
            if "mask_desc" in named:
                mask = named["mask_desc"]
                assert [int(size > 1) for size in mask.shape[:2]] == [named["mask_b"], named["mask_h"]]
                assert all(stride % 8 == 0 for stride in mask.stride()[:3])
                y.copy_(attend(MASKED, [*tensors, mask[..., : named["T"]]], {}))
            else:
                y.copy_(attend(FORMULA, tensors, {}))


@pytest.fixture(autouse=True)
def few_multiprocessors(monkeypatch):
    facts = types.SimpleNamespace(multi_processor_count=PROGRAMS)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: facts)


def opened(how, *, groups=1, is_transposed=False, codes=0, mask_unit=0, weights=None):
    """A runner, with a mask where its rows begin at a unit; and what launches its kernel."""
    mask = ("added", "float16", mask_unit) if mask_unit else ("none", "", 1)
    problem = AttentionProblem(
        2, 4, 70, 33, groups, 32, "float16", 8, *mask, False, False, FORMULA.epilogue, ("float16",)
    )  # fmt: skip
    make = short.kernel_of if isinstance(how, short.ShortAttention) else kernel_of
    launcher = Launcher(make(problem, how))
    options = {
        "scale": FORMULA.scale,
        "is_transposed": is_transposed,
        "dtype": "float16",
        "scalars": [],
        "outputs": ["float16"],
        "codes": codes,
    }
    names = tuple(weights or ())
    step = Step("hopper_attention", "region", ("q", "k", "v"), ("y",), options, names, ("k",))
    return open_runner(step, Assets(CPU, weights or {}, {"k": launcher})), launcher


def allocate(number, shape, dtype, *, channels_last=False):
    return torch.full(shape, torch.nan, dtype=dtype)


def drawn(*shape):
    return torch.randn(shape, generator=torch.Generator().manual_seed(sum(shape))).half()


@pytest.mark.parametrize("groups", [1, 2])
@pytest.mark.parametrize("is_transposed", [False, True])
def test_floats_are_handed_on_as_they_lie(groups, is_transposed):
    runner, launcher = opened(FLOATS, groups=groups, is_transposed=is_transposed)
    q = drawn(2, 70, 4, 32).transpose(1, 2)
    k, v = (drawn(2, part, 4 // groups, 32).transpose(1, 2)[:, :, :33] for part in (33, 34))
    (y,) = runner.run([q, k.mT if is_transposed else k, v], allocate)
    torch.testing.assert_close(y, attend(FORMULA, [q, k, v], {}).half(), rtol=0, atol=0)
    assert y.stride() == q.stride()
    ((grid, named),) = launcher.launches
    assert grid == (PROGRAMS, 1, 1)
    assert named["T"] == 33
    assert named["scale"] == pytest.approx(0.25 / torch.log(torch.tensor(2.0)).item())
    assert named["q_desc"].data_ptr() == q.data_ptr()
    assert named["v_desc"].data_ptr() == v.data_ptr()


@pytest.mark.parametrize(("batch", "programs"), [(2, PROGRAMS * short.NEIGHBOURS), (1, 4)])
def test_two_programs_share_a_multiprocessor_over_few_keys(batch, programs):
    runner, launcher = opened(SHORT)
    q, k, v = drawn(batch, 4, 70, 32), drawn(batch, 4, 33, 32), drawn(batch, 4, 33, 32)
    (y,) = runner.run([q, k, v], allocate)
    torch.testing.assert_close(y, attend(FORMULA, [q, k, v], {}).half(), rtol=0, atol=0)
    ((grid, named),) = launcher.launches
    assert grid == (programs, 1, 1)
    assert named["scale"] == pytest.approx(0.25 / torch.log(torch.tensor(2.0)).item())


def test_what_cannot_be_read_is_copied_and_one_sample_serves_all():
    runner, launcher = opened(FLOATS)
    q, k, v = drawn(2, 4, 70, 32), drawn(1, 4, 33, 32), drawn(2, 4, 33, 33)[..., 1:]
    (y,) = runner.run([q, k, v], allocate)
    torch.testing.assert_close(y, attend(FORMULA, [q, k.expand(2, -1, -1, -1), v], {}).half(), rtol=0, atol=0)
    ((_, named),) = launcher.launches
    assert named["k_desc"].stride(0) == 0
    assert named["v_desc"].stride(2) % 8 == 0


@pytest.mark.parametrize(("how", "count"), [(CODES, 6), (SCORE_CODES, 4)])
def test_codes_and_scales_take_the_places_of_floats(how, count):
    runner, launcher = opened(how, codes=count)
    q, k, v = drawn(2, 4, 70, 32), drawn(2, 4, 33, 32), drawn(2, 4, 33, 32)
    codes = [torch.full((1,), number, dtype=torch.int8) for number in range(count)]
    runner.run([q, k, v, *codes], allocate)
    ((_, named),) = launcher.launches
    assert (named["q_desc"], named["q_scale_ptr"]) == (codes[0], codes[1])
    assert (named["k_desc"], named["k_scale_ptr"]) == (codes[2], codes[3])
    if count == 6:
        assert (named["v_desc"], named["v_scale_ptr"]) == (codes[4], codes[5])
    else:
        assert named["v_desc"].data_ptr() == v.data_ptr()
    assert "scale" not in named


def test_codes_of_values_alone_stand_beside_floats():
    runner, launcher = opened(VALUE_CODES, codes=2)
    q, k, v = drawn(2, 4, 70, 32), drawn(2, 4, 33, 32), drawn(2, 4, 33, 32)
    codes = [torch.full((1,), number, dtype=torch.int8) for number in range(2)]
    runner.run([q, k, v, *codes], allocate)
    ((_, named),) = launcher.launches
    assert named["q_desc"].data_ptr() == q.data_ptr()
    assert named["k_desc"].data_ptr() == k.data_ptr()
    assert (named["v_desc"], named["v_scale_ptr"]) == (codes[0], codes[1])
    assert named["scale"] == pytest.approx(0.25 / torch.log(torch.tensor(2.0)).item())


@pytest.mark.parametrize("shape", [(2, 1, 1, 33), (1, 4, 1, 33), (33,), (1, 1, 1, 1), (2, 4, 1, 33)])
@pytest.mark.parametrize("how", [FLOATS, SHORT])
def test_masks_are_as_wide_as_they_are(shape, how):
    runner, launcher = opened(how, mask_unit=8)
    inputs = [drawn(2, 4, 70, 32), drawn(2, 4, 33, 32), drawn(2, 4, 33, 32), drawn(*shape)]
    (y,) = runner.run(inputs, allocate)
    torch.testing.assert_close(y, attend(MASKED, inputs, {}).half(), rtol=0, atol=0)
    ((_, named),) = launcher.launches
    assert named["mask_desc"].shape[3] == 40


def test_a_mask_that_is_repeated_is_narrow():
    runner, launcher = opened(FLOATS, mask_unit=8)
    inputs = [drawn(2, 4, 70, 32), drawn(2, 4, 40, 32), drawn(2, 4, 40, 32), drawn(2, 1, 1, 40)]
    inputs[3] = inputs[3].expand(2, 4, 1, 40)
    (y,) = runner.run(inputs, allocate)
    torch.testing.assert_close(y, attend(MASKED, inputs, {}).half(), rtol=0, atol=0)
    ((_, named),) = launcher.launches
    assert named["mask_desc"].shape == (2, 1, 1, 40)


def test_a_constant_mask_is_read_from_the_weights():
    mask = drawn(1, 1, 1, 48)
    runner, _ = opened(FLOATS, mask_unit=16, weights={"m": mask})
    inputs = [drawn(2, 4, 70, 32), drawn(2, 4, 33, 32), drawn(2, 4, 33, 32)]
    (y,) = runner.run(inputs, allocate)
    torch.testing.assert_close(y, attend(MASKED, [*inputs, mask[..., :33]], {}).half(), rtol=0, atol=0)
    with pytest.raises(DataError, match="region"):
        opened(FLOATS, mask_unit=8)[0].run([*inputs, drawn(2, 1, 70, 33)], allocate)


def test_nothing_to_attend_to_gives_zeros():
    runner, launcher = opened(FLOATS)
    (y,) = runner.run([drawn(2, 4, 70, 32), drawn(2, 4, 0, 32), drawn(2, 4, 0, 32)], allocate)
    assert torch.equal(y, torch.zeros(2, 4, 70, 32).half())
    (y,) = runner.run([drawn(2, 4, 0, 32), drawn(2, 4, 33, 32), drawn(2, 4, 33, 32)], allocate)
    assert y.shape == (2, 4, 0, 32)
    assert launcher.launches == []


def test_shapes_that_do_not_fit_are_named():
    runner, _ = opened(FLOATS, groups=2)
    with pytest.raises(DataError, match="cannot attend in region 'region'") as error:
        runner.run([drawn(2, 4, 70, 32), drawn(2, 4, 33, 32), drawn(2, 4, 33, 32)], allocate)
    assert error.value.expected.startswith("q [B, 2 G, S, 32]")
