# SPDX-License-Identifier: Apache-2.0
"""Attention that is beyond the kernel's offsets is refused when engines are built, not when they run."""

from dataclasses import replace

import pytest

from quantrt.gpu import gpu_named
from quantrt.kernels.attention.spec import MAX_OFFSET, AttentionProblem, why_not
from quantrt.regions.region import Attention

H200 = gpu_named("h200")
SMALL = AttentionProblem(
    B=1,
    H=2,
    S=64,
    T=64,
    groups=1,
    D=64,
    dtype="float16",
    unit=16,
    mask="added",
    mask_dtype="float16",
    mask_unit=16,
    has_mask_rows=True,
    is_causal=False,
    epilogue=Attention((), 1.0, is_transposed=False, has_mask=False).epilogue,
    outputs=("float16",),
)


def test_a_small_one_is_taken():
    assert why_not(SMALL, H200) is None


@pytest.mark.parametrize("size", ["S", "T"])
def test_a_sample_of_two_thirty_one_elements(size: str):
    most = (MAX_OFFSET + 1) // (SMALL.H * SMALL.D)
    assert why_not(replace(SMALL, **{size: most}, mask="none"), H200) is None
    reason = why_not(replace(SMALL, **{size: most + 1}, mask="none"), H200)
    assert reason == "a sample of q, k or v that is beyond 32-bit offsets"


def test_keys_that_heads_share_count_once():
    many = (MAX_OFFSET + 1) // SMALL.D
    assert why_not(replace(SMALL, T=many, groups=2, mask="none"), H200) is None


def test_a_mask_of_more_scores_than_that():
    wide = replace(SMALL, S=65_536, T=32_768)
    assert why_not(wide, H200) is None, "(S - 1) T is just below"
    reason = why_not(replace(wide, S=65_538), H200)
    assert reason == "a mask of a head that is beyond 32-bit offsets"
    assert why_not(replace(wide, S=65_538, has_mask_rows=False), H200) is None
    assert why_not(replace(wide, S=65_538, mask="none"), H200) is None
