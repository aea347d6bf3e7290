# SPDX-License-Identifier: Apache-2.0
"""ReLU linear attention in Triton's interpreter, against its formula in float64."""

import pytest
import torch

from quantrt.errors import DataError
from quantrt.gpu import gpu_named
from quantrt.regions.region import LinearAttention
from quantrt.runtime.cuda.reference.compute import compute
from quantrt.tactics.cuda.attention.linear import list_tactics
from quantrt.tactics.cuda.tactic import Rejected, Tactic, Workload
from quantrt.tactics.cuda.timing.check import check
from tests.kernels.run_tactic import facts_of, run_tactic

H200 = gpu_named("H200")
FORMULA = LinearAttention((("q", 0), ("k", 0), ("v", 0)), 1e-5)


def noise(*shape: int, dtype: torch.dtype = torch.float16, seed: int = 0) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def in_one_image(heads: int, D: int, E: int, tokens: int, dtype: torch.dtype) -> list[torch.Tensor]:
    """q, k and v as views of what one convolution stores, channels innermost."""
    image = noise(2, tokens, heads, 2 * D + E, dtype=dtype).transpose(1, 2)
    return list(image.split([D, D, E], -1))


def workload(inputs: list[torch.Tensor], stored: torch.dtype) -> Workload:
    dtype = str(stored).removeprefix("torch.")
    return Workload("region", FORMULA, tuple(map(facts_of, inputs)), (dtype,))


def is_right(inputs: list[torch.Tensor], stored: torch.dtype = torch.float16) -> set[bool]:
    """Every tactic's result is the reference's; whether kernels for dense heads were launched, or others."""
    work = workload(inputs, stored)
    want = compute(FORMULA, inputs, work.outputs)
    launched = set()
    for tactic in list_tactics(work, H200):
        assert isinstance(tactic, Tactic)
        got, kernels = run_tactic(tactic, inputs)
        assert check(work, tactic, got, want) is None
        assert got[0].transpose(1, 2).is_contiguous() and want[0].transpose(1, 2).is_contiguous()
        launched |= {bool(dict(kernel.constants)["IS_DENSE"]) for kernel in kernels}
    return launched


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_views_of_one_image_are_read_where_they_are(dtype: torch.dtype):
    assert is_right(in_one_image(2, 16, 16, 49, dtype), dtype) == {True}


@pytest.mark.parametrize(("D", "E"), [(8, 8), (5, 24), (32, 16), (64, 64)])
def test_heads_of_any_size(D: int, E: int):
    is_right(in_one_image(1, D, E, 37, torch.float16))


def test_tensors_that_lie_otherwise_are_right_too():
    inputs = [noise(2, 3, 16, 40, seed=seed).transpose(2, 3) for seed in range(3)]
    assert is_right(inputs) == {False}


def test_queries_may_be_others_than_keys_and_of_another_type():
    q, k, v = (
        noise(1, 2, 9, 16),
        noise(1, 2, 70, 16, seed=1, dtype=torch.float32),
        noise(1, 2, 70, 16, seed=2),
    )
    is_right([q, k, v], torch.float32)


def test_sums_beyond_float16_are_divided_first():
    q, k, v = (100 * x.abs() for x in in_one_image(1, 16, 16, 64, torch.float16))
    products = torch.relu(k.float()).mT @ v.float()
    assert products.max() > 65504
    is_right([q, k, v])


def test_a_query_without_anything_positive_gives_zeros():
    q, k, v = in_one_image(1, 16, 16, 20, torch.float16)
    q = torch.cat([-q[:, :, :1].abs(), q[:, :, 1:]], 2)
    is_right([q, k, v])


def test_nan_is_handed_on():
    q, k, v = in_one_image(1, 16, 16, 20, torch.float16)
    q = q.clone()
    q[0, 0, 3, 5] = torch.nan
    (want,) = compute(FORMULA, [q, k, v], ("float16",))
    assert want[0, 0, 3].isnan().all()
    is_right([q, k, v])


def test_larger_heads_are_left_to_the_library():
    inputs = [noise(1, 1, 4, 96, seed=seed) for seed in range(3)]
    work = workload(inputs, torch.float16)
    refused, products = list_tactics(work, H200)
    assert isinstance(refused, Rejected)
    assert "at most 64" in refused.reason
    assert isinstance(products, Tactic)
    got, kernels = run_tactic(products, inputs)
    assert not kernels
    assert check(work, products, got, compute(FORMULA, inputs, work.outputs)) is None


def test_shapes_that_do_not_belong_together_are_refused():
    (tactic, *_) = list_tactics(workload([noise(1, 2, 9, 16)] * 3, torch.float16), H200)
    assert isinstance(tactic, Tactic)
    with pytest.raises(DataError, match=r"cannot attend in region 'region'"):
        run_tactic(tactic, [noise(1, 2, 9, 16), noise(1, 2, 8, 16), noise(1, 2, 9, 16)])


def test_no_tokens_give_no_result():
    is_right([noise(2, 2, 0, 16), noise(2, 2, 0, 16), noise(2, 2, 0, 16)])
