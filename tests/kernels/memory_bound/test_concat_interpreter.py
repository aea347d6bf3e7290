# SPDX-License-Identifier: Apache-2.0
"""Tensors side by side in Triton's interpreter: every element where torch puts it."""

from collections.abc import Sequence

import pytest
import torch

from quantrt.errors import DataError
from quantrt.gpu import gpu_named
from quantrt.kernels.concat.spec import MAX_INPUTS
from quantrt.regions.region import Concat
from quantrt.runtime.cuda.reference.compute import compute
from quantrt.tactics.cuda.memory_bound.concat import list_tactics
from quantrt.tactics.cuda.tactic import Rejected, Tactic, Workload
from tests.kernels.run_tactic import facts_of, run_tactic

H200 = gpu_named("H200")
IMAGES = [(2, 16, 5, 3), (2, 48, 5, 3), (2, 32, 5, 3)]
"""Channels that whole words of eight bytes hold."""

TYPES = (torch.int8, torch.float16, torch.float32)


def noise(shape: Sequence[int], dtype: torch.dtype = torch.float32, seed: int = 0) -> torch.Tensor:
    x = 50 * torch.randn(tuple(shape), generator=torch.Generator().manual_seed(seed))
    return x.to(dtype)


def images(shapes: Sequence[Sequence[int]], dtype: torch.dtype = torch.float32) -> list[torch.Tensor]:
    """Tensors with their channels innermost."""
    found = (noise(shape, dtype, seed) for seed, shape in enumerate(shapes))
    return [x.movedim(1, -1).contiguous().movedim(-1, 1) for x in found]


def tactics(inputs: Sequence[torch.Tensor], axis: int) -> list[Tactic | Rejected]:
    formula = Concat(tuple(("n", i) for i in range(len(inputs))), axis)
    dtype = str(inputs[0].dtype).removeprefix("torch.")
    return list_tactics(Workload("region", formula, tuple(map(facts_of, inputs)), (dtype,)), H200)


def joins(inputs: Sequence[torch.Tensor], axis: int = 1, **options: object) -> torch.Tensor:
    """The result of every tactic, the kernels among them with what is passed to the first."""
    want = torch.cat(list(inputs), axis)
    found = tactics(inputs, axis)
    assert {tactic.source for tactic in found} == {"triton", "torch"}
    for tactic in found:
        assert isinstance(tactic, Tactic)
        (got,), launched = run_tactic(tactic, inputs, **options)
        assert torch.equal(got, want)
        assert got.stride() == reference(inputs, axis).stride()
        assert len(launched) == (tactic.source == "triton")
    return got


def reference(inputs: Sequence[torch.Tensor], axis: int) -> torch.Tensor:
    dtype = str(inputs[0].dtype).removeprefix("torch.")
    return compute(Concat(tuple(("n", i) for i in range(len(inputs))), axis), inputs, (dtype,))[0]


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("axis", [1, -3, 2, 3])
def test_images_lie_channels_last_along_any_axis(dtype: torch.dtype, axis: int):
    shapes = IMAGES if axis in (1, -3) else [[4 if i == axis else n for i, n in enumerate(IMAGES[0])]] * 2
    got = joins(images(shapes, dtype), axis)
    assert got.is_contiguous(memory_format=torch.channels_last)


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("channels", [(1, 1), (3, 41, 5), (7, 129), (24, 8, 40), (2, 6, 4)])
def test_channels_that_no_word_holds(dtype: torch.dtype, channels: Sequence[int]):
    joins(images([(1, count, 3, 2) for count in channels], dtype))


@pytest.mark.parametrize("keep", [1, 2])
def test_the_other_kernels_take_what_the_first_is_not_compiled_for(keep: int):
    inputs = images([(1, 128, 3, 2), (1, 256, 3, 2)], torch.float16)
    others = images([(1, 128 + 4 // keep, 3, 2), (1, 256, 3, 2)], torch.float16)
    (tactic, *_) = tactics(inputs, 1)
    assert isinstance(tactic, Tactic)
    (got,), (launched,) = run_tactic(tactic, others)
    assert torch.equal(got, torch.cat(others, 1))
    assert launched == tactic.drafts[0].kernels[keep], "the nearest that is right"


def test_halves_of_images_are_read_where_they_lie():
    whole = images([(2, 64, 5, 3)], torch.int8)[0]
    joins([*whole.chunk(2, 1), images([(2, 16, 5, 3)], torch.int8)[0]])
    odd = images([(2, 9, 5, 3)], torch.int8)[0]
    joins([odd[:, 4:], odd[:, :4]])


def test_an_input_in_another_order_is_copied():
    joins([*images([(2, 8, 5, 3)]), noise((2, 4, 5, 3))])
    joins([noise((2, 4, 5, 3)), noise((2, 4, 3, 5)).transpose(2, 3)])


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_rows_of_text(axis: int):
    shapes = [[3 + i if n == axis else size for n, size in enumerate((2, 7, 33))] for i in range(2)]
    joins([noise(shape) for shape in shapes], axis)


def test_other_numbers_of_axes_and_inputs():
    joins([noise((5,)), noise((41,))], 0)
    joins([noise((129, 1)), noise((129, 3))], -1)
    joins([noise((2, 3, 4, 5, 6)), noise((2, 1, 4, 5, 6))])
    joins([noise((2, 3), torch.float16)] * MAX_INPUTS)
    joins([noise((2, 3))])


def test_empty_ones():
    joins([noise((2, 0, 3)), noise((2, 4, 3))])
    (tactic, *_) = tactics([noise((2, 4)), noise((2, 4))], 1)
    assert run_tactic(tactic, [noise((0, 4)), noise((0, 4))])[0][0].shape == (0, 8)


def test_too_many_inputs_are_left_to_torch():
    found = tactics([noise((2, 3))] * (MAX_INPUTS + 1), 1)
    assert [type(tactic) for tactic in found] == [Rejected, Tactic]
    assert f"at most {MAX_INPUTS}" in found[0].reason


def test_sizes_that_do_not_suit_are_an_error():
    (tactic, *_) = tactics([noise((2, 3)), noise((2, 3))], 1)
    with pytest.raises(DataError, match="'region' side by side") as info:
        run_tactic(tactic, [noise((2, 3)), noise((3, 3))])
    assert "[3, 3]" in str(info.value)
