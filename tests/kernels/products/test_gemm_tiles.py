# SPDX-License-Identifier: Apache-2.0
"""Which tiles are offered for a product, what it should cost, and why there are none."""

import dataclasses

import numpy as np
import pytest

from quantrt.gpu import GPUS, GpuFacts, gpu_named
from quantrt.kernels.gemm.spec import GemmProblem, kernel_of, why_not
from quantrt.kernels.gemm.tiles import configs, cost, estimate_us
from quantrt.kernels.kernel_text import spec_from_json, spec_to_json
from quantrt.regions.expression import Expression
from quantrt.regions.region import Gemm, Rows
from quantrt.tactics.cuda.products.gemm import list_tactics
from quantrt.tactics.cuda.tactic import Rejected, Tactic, TensorFacts, Workload
from tests.kernels.memory_bound.expressions import Builder, constant
from tests.kernels.products.gemm_problems import SUM, heavy_codes, plain_codes, plain_floats

H200 = gpu_named("H200")
SHAPES = [(6304, 3072, 768), (128, 4096, 1024), (1, 7, 41), (1, 1, 1), (100_000, 16, 3), (0, 64, 64)]


def workload(
    epilogue: Expression | None = None,
    *,
    x: str = "int8",
    outputs: tuple[str, ...] = ("float16",),
    weight: np.ndarray | None = None,
    rows: int = 64,
) -> Workload:
    w = np.ones((32, 64), np.int8) if weight is None else weight
    formula = Gemm(("n", 0), ("n", 1), "w", True, epilogue or Builder(SUM).build(0))
    facts = TensorFacts(x, (rows, w.shape[1]), (w.shape[1], 1))
    return Workload("region", formula, (facts,), outputs, w, {"bias": np.zeros(w.shape[0], np.float32)})


def reason_of(found: list[Tactic | Rejected], source: str) -> str:
    """The one reason that a source gives."""
    (row,) = [row for row in found if row.source == source and isinstance(row, Rejected)]
    return row.reason


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("make", [plain_codes, heavy_codes, plain_floats])
@pytest.mark.parametrize("gpu", [gpu for gpu in GPUS if gpu.capability >= 80], ids=lambda gpu: gpu.name)
def test_every_problem_has_a_few_tiles_that_fit(gpu: GpuFacts, make, shape):
    problem: GemmProblem = make(*shape)
    assert why_not(problem, gpu) is None
    tiles = configs(problem, gpu)
    assert 1 <= len(tiles) <= 10
    assert len(set(tiles)) == len(tiles)
    for tile in tiles:
        assert tile.shared_bytes(problem.dtype) < gpu.shared_memory_bytes
        assert estimate_us(problem, tile, gpu) >= cost(problem, gpu).time_us


def test_few_rows_get_tiles_that_fill_the_device():
    tile = configs(plain_codes(128, 4096, 1024), H200)[0]
    programs = -(-128 // tile.block_m) * -(-4096 // tile.block_n)
    assert 100 <= programs <= 132
    large = configs(plain_floats(8192, 8192, 8192), H200)[0]
    assert (large.block_m, large.block_n) == (128, 256)


def test_where_memory_takes_the_time_tiles_are_not_the_smallest():
    tile = configs(plain_floats(100_000, 64, 64), H200)[0]
    assert tile.block_m * tile.block_n >= 64 * 64


def test_cost_is_the_longer_of_arithmetic_and_memory():
    problem = plain_floats(4096, 4096, 4096)
    found = cost(problem, H200)
    assert found.flops == 2 * 4096**3
    assert found.size_bytes == 3 * 4096 * 4096 * 2 + 4096 * 4
    assert found.time_us == pytest.approx(found.flops / (0.8 * 989.4e6))
    thin = cost(plain_floats(1, 4096, 4096), H200)
    assert thin.time_us == pytest.approx(thin.size_bytes / (0.875 * 4800e3))


def test_layers_that_differ_in_numbers_alone_share_a_kernel():
    problem = plain_codes(64, 64, 64)
    operands = [dataclasses.replace(x, value=3.0, name="other") for x in problem.epilogue.operands]
    epilogue = dataclasses.replace(problem.epilogue, operands=tuple(operands))
    other = dataclasses.replace(problem, epilogue=epilogue, M=99)
    tile = configs(problem, H200)[0]
    assert kernel_of(problem, tile) == kernel_of(other, tile)
    assert spec_from_json(spec_to_json(kernel_of(problem, tile))) == kernel_of(problem, tile)


def test_turing_multiplies_codes_in_the_library_alone():
    found = list_tactics(workload(), gpu_named("T4"))
    assert "75" in reason_of(found, "triton")
    assert [row.name for row in found if isinstance(row, Tactic)] == ["matmul, rows"]


def test_volta_multiplies_no_codes():
    found = list_tactics(workload(), gpu_named("V100"))
    assert [row.name for row in found if isinstance(row, Tactic)] == ["matmul dequantized"]
    assert all("70" in row.reason for row in found if isinstance(row, Rejected))


@pytest.mark.parametrize(
    ("made", "reason"),
    [
        (workload(rows=16), "16 rows"),
        (workload(weight=np.ones((33, 64), np.int8)), "33 by 64"),
        (workload(weight=np.ones((32, 65), np.int8)), "32 by 65"),
    ],
    ids=str,
)
def test_what_the_library_does_not_take(made, reason):
    found = list_tactics(made, H200)
    assert reason in reason_of(found, "cublaslt")
    assert any(row.source == "triton" and isinstance(row, Tactic) for row in found)


@pytest.mark.parametrize(("dtype", "first"), [("float32", "cublaslt"), ("float16", "triton")])
def test_whose_tactics_come_first(dtype, first):
    found = list_tactics(workload(x=dtype, outputs=(dtype,), weight=np.ones((32, 64), np.float32)), H200)
    assert {row.source for row in found} == {"cublaslt", "triton"}
    assert found[0].source == first


def row_maximum() -> Expression:
    b = Builder(SUM)
    return b.build(b("sub", 0, b("row_max", 0)))


def many_operands() -> Expression:
    b = Builder(SUM, *[constant("bias")] * 13)
    return b.build(b("add", 0, 13))


@pytest.mark.parametrize(
    ("made", "reason"),
    [
        (workload(row_maximum()), "reduction over rows"),
        (workload(many_operands()), "13 operands"),
        (workload(outputs=("float64",)), "float64"),
        (workload(weight=np.ones((8, 132_112), np.int8)), "overflow"),
        (workload(x="float16"), "an input of float16 for a weight of int8"),
        (workload(x="float16", weight=np.full((8, 8), 1e6, np.float32)), "beyond float16"),
        (workload(weight=np.ones((0, 64), np.int8)), "a weight of [0, 64]"),
        (dataclasses.replace(workload(), formula=Rows(Builder().build())), "Rows"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_our_kernel_does_not_take(made, reason):
    assert reason in reason_of(list_tactics(made, H200), "triton")
