# SPDX-License-Identifier: Apache-2.0
"""Products with weights in 4 bits through tactics and runners, against the reference, in the interpreter.

A code less its zero point is a whole number in a half, and sums are float32: results are nearer to those with
the weight in float32 than a product of halves is.
"""

import numpy as np
import pytest
import torch

from quantrt.errors import DataError
from quantrt.gpu import gpu_named
from quantrt.kernels.gemm_w4a16 import tiles
from quantrt.regions.expression import Expression, Operand
from quantrt.runtime.cuda.reference.compute import compute
from quantrt.tactics.cuda.candidates import list_tactics
from quantrt.tactics.cuda.tactic import Rejected, Tactic, Workload
from tests.kernels.memory_bound.expressions import TENSOR, Builder, constant, gelu_erf, scalar, silu
from tests.kernels.products.grouped_products import grouped_weight, workload_of
from tests.kernels.run_tactic import run_tactic

H200 = gpu_named("H200")
SUM = Operand("accumulator")
RIGHT = Operand("accumulator", "right half")
SUMS_BOUND = 2e-6
"""Of float32 sums of hundreds of products, over the size of the largest: 2**-24 for a few dozen steps."""

SHAPES = [(1, 41, 128, 64), (7, 33, 100, 32), (33, 64, 256, 128), (130, 129, 200, 64), (17, 7, 320, 32)]
"""M, N, K, group size: K is no multiple of the group in some, N odd."""


@pytest.fixture
def all_tiles(monkeypatch: pytest.MonkeyPatch) -> None:
    """Problems that an interpreter can do are too small for parts to be worth it."""
    for name in ("SLOWEST_RATIO", "MAX_CONFIGS", "MAX_CONFIGS_PER_TILE"):
        monkeypatch.setattr(tiles, name, 1000)


def floats(rng: np.random.Generator, *shape: int) -> torch.Tensor:
    return torch.from_numpy(rng.standard_normal(shape).astype(np.float16))


def own(workload: Workload) -> list[Tactic]:
    """The tactics that read the codes."""
    found = list_tactics(workload, H200)
    return [x for x in found if isinstance(x, Tactic) and x.drafts[0].runner == "gemm_w4a16"]


def expected(workload: Workload, inputs: list[torch.Tensor]) -> list[torch.Tensor]:
    constants = {name: torch.from_numpy(array) for name, array in workload.constants.items()}
    weight = None if workload.weight is None else torch.from_numpy(workload.weight)
    return compute(workload.formula, inputs, workload.outputs, weight, constants)


def assert_sums(workload: Workload, inputs: list[torch.Tensor], tactic: Tactic) -> None:
    got, want = run_tactic(tactic, inputs)[0][0], expected(workload, inputs)[0]
    assert got.dtype == want.dtype == torch.float32 and got.shape == want.shape
    assert (got - want).abs().max() <= SUMS_BOUND * want.abs().max(), tactic.name


def sums() -> Expression:
    return Builder(SUM).build(0)


@pytest.mark.parametrize("has_zeros", [False, True], ids=["signed", "zero points"])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_every_tile_gives_the_sums(shape, has_zeros: bool, rng: np.random.Generator):
    M, N, K, size = shape
    weight = grouped_weight(rng, K, N, size, has_zeros=has_zeros)
    x = floats(rng, M, K)
    workload = workload_of(sums(), [x], weight, ("float32",), is_transposed=N == 64)
    groups = workload.groups
    assert groups is not None and groups.group_size == size and (groups.zero_point is not None) == has_zeros
    tactics = own(workload)
    assert len({tactic.drafts[0].kernels for tactic in tactics}) == len(tactics) > 1
    for tactic in tactics:
        assert_sums(workload, [x], tactic)


@pytest.mark.parametrize("M", [1, 7, 33, 130])
def test_sums_in_parts(M: int, rng: np.random.Generator, all_tiles: None):
    weight, x = grouped_weight(rng, 1000, 33, 64), floats(rng, M, 1000)
    workload = workload_of(sums(), [x], weight, ("float32",))
    tactics = [tactic for tactic in own(workload) if "split" in tactic.name]
    assert tactics and all(tactic.workspace_bytes >= 2 * M * 33 * 4 for tactic in tactics)
    for tactic in tactics[:3]:
        assert_sums(workload, [x], tactic)
        assert run_tactic(tactic, [x[:0]])[0][0].shape == (0, 33)


@pytest.mark.parametrize("M", [7, 33])
def test_the_whole_epilogue(M: int, rng: np.random.Generator, all_tiles: None):
    """+ bias, GELU, + a residual; stored as halves and as codes, in one kernel and in parts."""
    N, K = 33, 256
    b = Builder(SUM, constant("bias"), TENSOR, scalar(0.05))
    y = b("add", gelu_erf(b, b("add", 0, 1)), 2)
    inputs = [floats(rng, M, K), floats(rng, M, N)]
    workload = workload_of(
        b.build(y, b("quantize", y, 3)),
        inputs,
        grouped_weight(rng, K, N, 64),
        ("float16", "int8"),
        bias=rng.standard_normal(N).astype(np.float32),
    )
    tactics = own(workload)
    whole, split = (next(t for t in tactics if ("split" in t.name) is is_split) for is_split in (False, True))
    want, want_codes = expected(workload, inputs)
    for tactic in (whole, split):
        (got, got_codes), _ = run_tactic(tactic, inputs)
        assert (got.float() - want.float()).abs().max() <= 2**-10 * want.abs().max()
        assert (got_codes.int() - want_codes.int()).abs().max() <= 1
        assert (got_codes != want_codes).sum() <= 0.01 * want_codes.numel()


def test_a_gate(rng: np.random.Generator):
    M, N, K = 9, 40, 192
    b = Builder(SUM, RIGHT)
    epilogue = b.build(b("mul", silu(b, 0), 1))
    x = floats(rng, M, K)
    workload = workload_of(epilogue, [x], grouped_weight(rng, K, 2 * N, 64), ("float16",), is_gated=True)
    (want,) = expected(workload, [x])
    tactics = own(workload)
    assert tactics and not any("split" in tactic.name for tactic in tactics)
    for tactic in tactics:
        (got,) = run_tactic(tactic, [x])[0]
        assert (got.float() - want.float()).abs().max() <= 2**-10 * want.abs().max()


def test_rows_that_lie_apart(rng: np.random.Generator):
    """A slice of the columns of something wider, three axes, and one row of it."""
    weight, wide = grouped_weight(rng, 96, 40, 32), floats(rng, 2, 3, 200)
    x = wide[..., 8:104]
    workload = workload_of(sums(), [x], weight, ("float32",))
    for given in (x, x[:1, :1]):
        assert_sums(workload, [given], own(workload)[0])
    with pytest.raises(DataError, match=r"float16 \[\.\.\., 96\]"):
        run_tactic(own(workload)[0], [wide])
    with pytest.raises(DataError, match="float16"):
        run_tactic(own(workload)[0], [x.float()])


def test_no_sum_overflows(rng: np.random.Generator):
    """Codes times the largest halves are sums that halves do not have."""
    weight = grouped_weight(rng, 128, 16, 64)
    x = torch.full((2, 128), 65504.0, dtype=torch.float16)
    workload = workload_of(sums(), [x], weight, ("float32",))
    assert_sums(workload, [x], own(workload)[0])


def test_what_is_not_theirs(rng: np.random.Generator):
    weight = grouped_weight(rng, 128, 16, 64)
    x = floats(rng, 4, 128)
    of_halves = workload_of(sums(), [x], weight, ("float32",))
    others = workload_of(sums(), [x], weight * np.float32(1.1) + np.float32(1e-3), ("float32",))
    assert others.groups is None and not own(others)
    of_floats = workload_of(sums(), [x.float()], weight, ("float32",))
    assert of_floats.groups is None and not own(of_floats)
    assert of_halves.structure() != others.structure(), "times of one are none of the other"
    assert of_halves.structure()[:-2] == others.structure()
    t4 = [row for row in list_tactics(of_halves, gpu_named("T4")) if "gemm" in row.name]
    assert t4 and all(isinstance(row, Rejected) for row in t4)
    names = [row.name for row in list_tactics(of_halves, H200) if row.source == "triton"]
    assert names[0].startswith("gemm w4") and not names[1].startswith("gemm w4")
    many = workload_of(sums(), [floats(rng, 256, 128)], weight, ("float32",))
    names = [row.name for row in list_tactics(many, H200) if row.source == "triton"]
    assert not names[0].startswith("gemm w4") and names[1].startswith("gemm w4")
