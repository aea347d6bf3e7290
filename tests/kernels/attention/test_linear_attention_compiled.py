# SPDX-License-Identifier: Apache-2.0
"""ReLU linear attention compiled for GPUs that are not here: whole vectors are loaded, nothing spills."""

from pathlib import Path

from quantrt.gpu import gpu_named
from quantrt.kernels.linear_attention.spec import LinearProblem, configs, kernel_of, why_not
from tests.kernels.convolutions.test_conv2d_compiled import CAPABILITIES, instructions

PROBLEM = LinearProblem(16, 16, ("float16",) * 4, 1e-5)
"""A block of EfficientViT-B1."""


def test_it_compiles_everywhere(compiled_all, tmp_path: Path):
    tile = configs(PROBLEM)[0]
    dense, strided = compiled_all([kernel_of(PROBLEM, tile, is_dense=x) for x in (True, False)], CAPABILITIES)
    assert dense.spills == strided.spills == 0
    for capability in CAPABILITIES:
        loads = {x for x in instructions(dense.cubins[capability], tmp_path) if x.startswith("LDG")}
        assert loads and all(".64" in x or ".128" in x for x in loads), loads


def test_no_tile_spills(compiled_all):
    largest = LinearProblem(64, 64, ("float16",) * 4, 1e-5)
    specs = [kernel_of(x, tile, is_dense=True) for x in (PROBLEM, largest) for tile in configs(x)]
    assert len(specs) == 6
    assert all(kernel.spills == 0 for kernel in compiled_all(specs, (90,)))


def test_it_needs_tensor_cores_that_triton_compiles_for():
    reason = why_not(PROBLEM, gpu_named("T4"))
    assert reason is not None and "80 is the least" in reason
