# SPDX-License-Identifier: Apache-2.0
"""Cuts of sums: where tiles are few, into equal parts, by an estimate that knows of the second kernel."""

from dataclasses import replace

import pytest

from quantrt.gpu import GPUS, GpuFacts, gpu_named
from quantrt.kernels.gemm.spec import GemmProblem
from quantrt.kernels.split_k.spec import add_kernel_of, parts_bytes, parts_kernel_of, rows_of
from quantrt.kernels.split_k.tiles import configs, estimate_us
from quantrt.regions.expression import IDENTITY
from tests.conv_layers import layer

H200 = gpu_named("H200")
PRODUCT = GemmProblem(128, 1024, 4096, "float16", 16, IDENTITY, (), ("float16",))
LAYER = layer(7, 512, 512, dtype="float16", outputs=("float16",))
PROBLEMS = {
    "product": PRODUCT,
    "codes": replace(PRODUCT, dtype="int8"),
    "layer": LAYER,
    "layer of codes": replace(LAYER, dtype="int8", outputs=("int8",)),
}


@pytest.mark.parametrize("gpu", [gpu for gpu in GPUS if gpu.capability >= 80], ids=lambda gpu: gpu.name)
@pytest.mark.parametrize("name", PROBLEMS)
def test_parts_are_equal(name: str, gpu: GpuFacts):
    problem = PROBLEMS[name]
    found = configs(problem, gpu)
    assert len(found) <= 3
    assert gpu != H200 or found
    for config in found:
        kernel, add = parts_kernel_of(problem, config), add_kernel_of(problem, config)
        fixed = dict(kernel.constants)
        depth = problem.K if isinstance(problem, GemmProblem) else problem.C
        assert depth % fixed["BLOCK_K"] == 0
        taps = 1 if isinstance(problem, GemmProblem) else 9
        assert taps * depth // fixed["BLOCK_K"] % config.splits == 0
        assert dict(add.constants)["SPLITS"] == fixed["SPLITS"] == config.splits > 1
        assert config.tile.shared_bytes(problem.dtype) <= gpu.shared_memory_bytes
        assert parts_bytes(problem, config) == rows_of(problem) * problem.N * config.splits * 4


def test_none_where_tiles_are_many_or_sums_short():
    assert not configs(replace(PRODUCT, M=100_000), H200)
    assert not configs(replace(LAYER, images=1024), H200)
    assert not configs(replace(PRODUCT, K=41), H200)
    assert not configs(replace(PRODUCT, dtype="float32"), H200)
    assert not configs(replace(PRODUCT, M=0), H200)


def test_more_parts_cost_more_bytes():
    config = configs(PRODUCT, H200)[0]
    wide = replace(PRODUCT, outputs=("float32", "float32"))
    assert estimate_us(wide, config, H200) > estimate_us(PRODUCT, config, H200) > 4
