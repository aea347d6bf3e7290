# SPDX-License-Identifier: Apache-2.0
"""The reference of attention, some queries at a time."""

import math
from dataclasses import replace

import pytest

torch = pytest.importorskip("torch", reason="the reference is in torch")

from quantrt.regions.region import Attention  # noqa: E402
from quantrt.runtime.cuda.reference import attend as attend_module  # noqa: E402
from quantrt.runtime.cuda.reference.attend import attend  # noqa: E402

B, H, S, T, D = 2, 4, 7, 9, 8

FORMULA = Attention(edges=(), scale=D**-0.5, is_transposed=False, has_mask=False)
ADDED = replace(FORMULA, has_mask=True)
KEPT = replace(FORMULA, has_mask=True, mask_kind="kept", mask_value=-math.inf)
CAUSAL = replace(FORMULA, is_causal=True)


def qkv(heads: int = H) -> list:
    generator = torch.Generator().manual_seed(0)
    shapes = ((B, H, S, D), (B, heads, T, D), (B, heads, T, D))
    return [torch.randn(shape, generator=generator) for shape in shapes]


def mask(rows: int) -> object:
    return torch.randn(1, 1, rows, T, generator=torch.Generator().manual_seed(1))


CASES = {
    "plain": (FORMULA, qkv()),
    "grouped": (FORMULA, qkv(2)),
    "a row of a mask for all": (ADDED, [*qkv(), mask(1)]),
    "a row of a mask for each": (ADDED, [*qkv(), mask(S)]),
    "keys kept, for one query none": (KEPT, [*qkv(), (mask(S) > 0) & (torch.arange(S) != 3)[:, None]]),
    "causal": (CAUSAL, qkv()),
}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("count", [1, 2, 3])
def test_some_queries_at_a_time_are_all_at_once(case: str, count: int, monkeypatch: pytest.MonkeyPatch):
    formula, inputs = CASES[case]
    whole = attend(formula, inputs, {})
    monkeypatch.setattr(attend_module, "SCORES", count * B * H * T)
    # Sums in float64, in whatever order, are one number in float32 but for a last bit.
    torch.testing.assert_close(attend(formula, inputs, {}), whole, rtol=2**-23, atol=1e-12)


def test_no_more_scores_than_that_are_made_at_once(monkeypatch: pytest.MonkeyPatch):
    sizes = []
    own = torch.softmax
    monkeypatch.setattr(attend_module, "SCORES", 2 * B * H * T)
    monkeypatch.setattr(torch, "softmax", lambda x, axis: sizes.append(x.numel()) or own(x, axis))
    attend(FORMULA, qkv(), {})
    assert sizes == [2 * B * H * T] * 3 + [B * H * T]


def test_no_queries_have_no_results():
    q, k, v = qkv()
    assert attend(FORMULA, [q[:, :, :0], k, v], {}).shape == (B, H, 0, D)
