# SPDX-License-Identifier: Apache-2.0
"""Weights in 4 bits as kernels read them, and tiles of their products: whole groups, equal parts."""

import numpy as np
import pytest

from quantrt.gpu import GPUS, GpuFacts, gpu_named
from quantrt.kernels.gemm.tiles import estimate_us as estimate_whole_us
from quantrt.kernels.gemm_w4a16.spec import by_group, kernel_of, packed, why_not
from quantrt.kernels.gemm_w4a16.tiles import configs, cost, estimate_us, shared_bytes
from tests.kernels.products.gemm_problems import gated_floats, plain_codes, plain_floats
from tests.kernels.products.grouped_products import grouped

H200 = gpu_named("H200")


@pytest.mark.parametrize("block_k", [64, 128])
def test_four_codes_a_quarter_of_a_block_apart(rng: np.random.Generator, block_k: int):
    codes = rng.integers(0, 16, (5, 200)).astype(np.uint8)
    words = packed(codes, block_k)
    blocks = -(-200 // block_k)
    assert words.dtype == np.int16 and words.shape == (blocks, 5, block_k // 4)
    padded = np.pad(codes, ((0, 0), (0, blocks * block_k - 200)))
    for n, k in ((0, 0), (3, 17), (4, 199), (2, block_k - 1), (1, blocks * block_k - 1)):
        digit, place = divmod(k % block_k, block_k // 4)
        assert int(words[k // block_k, n, place].view(np.uint16)) >> 4 * digit & 0xF == padded[n, k]


def test_factors_lie_by_group(rng: np.random.Generator):
    scale = rng.standard_normal((5, 7)).astype(np.float32)
    made = by_group(scale, 128, 32, "float32")
    assert made.shape == (8, 5), "to the end of the last block"
    assert np.array_equal(made[:7], scale.T) and not made[7].any()


@pytest.mark.parametrize("gpu", [gpu for gpu in GPUS if gpu.capability >= 80], ids=lambda gpu: gpu.name)
@pytest.mark.parametrize("size", [32, 64, 128])
@pytest.mark.parametrize("M", [1, 33, 4096])
def test_tiles_have_whole_groups_and_parts_are_equal(M: int, size: int, gpu: GpuFacts):
    problem = grouped(plain_floats(M, 1000, 4000), size)
    assert why_not(problem, gpu) is None
    found = configs(problem, gpu)
    assert 0 < len(found) <= 6 and len(set(found)) == len(found)
    for config in found:
        fixed = dict(kernel_of(problem, config).constants)
        assert fixed["BLOCK_K"] % size == 0 and fixed["BLOCK_K"] // size <= 4
        assert -(-4000 // fixed["BLOCK_K"]) % config.splits == 0
        assert shared_bytes(problem, config) <= gpu.shared_memory_bytes
        assert config.splits == 1 or fixed["OUTPUTS"] == (0,), "parts are sums alone"


def test_few_rows_are_estimated_by_the_bytes_of_the_codes():
    problem = grouped(plain_floats(1, 8192, 8192), 64)
    assert cost(problem, H200).size_bytes == pytest.approx(8192 * 8192 * 4.5 / 8, rel=0.01)
    best = configs(problem, H200)[0]
    halves = plain_floats(1, 8192, 8192)
    assert estimate_us(problem, best, H200) < 0.6 * estimate_whole_us(halves, best.tile, H200)


def test_gates_are_not_cut():
    assert all(config.splits == 1 for config in configs(grouped(gated_floats(1, 256, 4096), 64), H200))


def test_what_is_not_multiplied():
    assert "float16, not int8" in (why_not(grouped(plain_codes(8, 8, 64), 64), H200) or "")
    assert "80 is the least" in (why_not(grouped(plain_floats(8, 8, 64), 64), gpu_named("T4")) or "")
