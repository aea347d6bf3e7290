# SPDX-License-Identifier: Apache-2.0
"""Which tiles of attention are tried: what is near by estimate, with blocks on their way first."""

from dataclasses import replace

from quantrt.gpu import gpu_named
from quantrt.kernels.attention.tiles import MAX_CONFIGS, configs
from tests.kernels.attention.test_attention_compiled import bert

H200 = gpu_named("H200")


def test_many_keys_are_loaded_ahead() -> None:
    tiles = configs(bert(), H200)
    assert len(tiles) == MAX_CONFIGS
    assert "64x64 w4 s3" in [tile.name for tile in tiles[:4]]
    assert {tile.num_stages for tile in tiles} == {2, 3}


def test_of_few_keys_one_stage_is_tried_too() -> None:
    problem = replace(bert(), S=64, T=64)
    assert {tile.num_stages for tile in configs(problem, H200)} >= {1}
    assert all(tile.block_n <= 64 for tile in configs(problem, H200) if tile.num_stages > 1)
