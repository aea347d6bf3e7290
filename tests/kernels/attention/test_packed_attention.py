# SPDX-License-Identifier: Apache-2.0
"""Attention over samples that lie behind each other, in Triton's interpreter and by the reference."""

import math
from itertools import pairwise

import numpy as np
import pytest
import torch
from torch.nn.functional import scaled_dot_product_attention

from quantrt.gpu import gpu_named
from quantrt.regions.region import Attention
from quantrt.runtime.cuda.reference.compute import compute
from quantrt.tactics.cuda.attention.attention import list_tactics
from quantrt.tactics.cuda.tactic import Tactic, Workload
from quantrt.tactics.cuda.timing.sample_inputs import random_inputs
from tests.kernels.run_tactic import facts_of, run_tactic

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")

H200 = gpu_named("h200")
EDGES = (("n", 0), ("n", 1), ("n", 2))

Tensor = torch.Tensor


def packed(
    rng: np.random.Generator, lengths: list[int], S: int, H: int, D: int, *, groups: int = 1
) -> list[Tensor]:
    """q, k and v [B, H, S, D], views of one projection, NaN behind the last sample; offsets."""
    B, heads = len(lengths), H + 2 * H // groups
    merged = torch.from_numpy(rng.standard_normal((B * S, heads, D)).astype(np.float32)).half()
    merged[sum(lengths) :] = math.nan
    parts = merged.view(B, S, heads, D).split([H, H // groups, H // groups], 2)
    offsets = torch.tensor([0, *np.cumsum(lengths)], dtype=torch.int32)
    return [*(part.transpose(1, 2) for part in parts), offsets]


def workload(inputs: list[Tensor], *, is_causal: bool = False, live_rows: int | None = None) -> Workload:
    scale = 1 / math.sqrt(inputs[0].shape[-1])
    formula = Attention(EDGES, scale, False, has_mask=False, is_causal=is_causal, is_packed=True)
    facts = tuple(map(facts_of, inputs))
    return Workload("attention", formula, facts, ("float16",), live_rows=live_rows)


def one_by_one(inputs: list[Tensor], *, is_causal: bool = False) -> Tensor:
    """[tokens, H, D]: every sample by itself, by torch."""
    q, k, v = (x.transpose(1, 2).flatten(0, 1).float() for x in inputs[:3])
    results = []
    for begin, end in pairwise(inputs[3].tolist()):
        one = [x[begin:end].transpose(0, 1) for x in (q, k, v)]
        y = scaled_dot_product_attention(*one, is_causal=is_causal, enable_gqa=True)
        results.append(y.transpose(0, 1))
    return torch.cat(results)


LENGTHS = [([5, 20, 1], 20), ([0, 33, 16, 0], 40), ([64], 64), ([1, 1], 16)]


@pytest.mark.parametrize(("lengths", "S"), LENGTHS)
@pytest.mark.parametrize(("groups", "is_causal"), [(1, False), (2, False), (1, True)])
def test_every_sample_sees_itself_alone(lengths, S, groups, is_causal, rng: np.random.Generator):
    inputs = packed(rng, lengths, S, 4, 16, groups=groups)
    case = workload(inputs, is_causal=is_causal)
    want, tokens = one_by_one(inputs, is_causal=is_causal), sum(lengths)
    (reference,) = compute(case.formula, inputs, case.outputs)
    tactics = [x for x in list_tactics(case, H200, allows_codes=False) if isinstance(x, Tactic)]
    assert {tactic.drafts[0].runner for tactic in tactics} == {"fused_attention"}
    found = [reference, *(run_tactic(tactic, inputs)[0][0] for tactic in (tactics[0], tactics[-1]))]
    for y in found:
        assert y.shape == inputs[0].shape
        rows = y.transpose(1, 2).flatten(0, 1)
        # Sums of float16 products, rounded to float16: 2**-11 of values around 1.
        torch.testing.assert_close(rows[:tokens].float(), want, atol=4e-3, rtol=4e-3)


def test_projections_apart_are_brought_into_a_row(rng: np.random.Generator):
    inputs = packed(rng, [3, 9], 10, 4, 16)
    case = workload(inputs)
    heads_first = [*(x.contiguous() for x in inputs[:3]), inputs[3]]  # samples are not behind each other
    (tactic, *_) = (x for x in list_tactics(case, H200, allows_codes=False) if isinstance(x, Tactic))
    (got,), _ = run_tactic(tactic, heads_first)
    rows = got.transpose(1, 2).flatten(0, 1)[:12]
    torch.testing.assert_close(rows.float(), one_by_one(inputs), atol=4e-3, rtol=4e-3)


def test_samples_to_time_share_the_tokens_evenly(rng: np.random.Generator):
    case = workload(packed(rng, [5, 20, 1], 20, 4, 16), live_rows=26)
    offsets = random_inputs(case, torch.device("cpu"))[3]
    assert offsets.tolist() == [0, 8, 17, 26]
    assert offsets.dtype == torch.int32
