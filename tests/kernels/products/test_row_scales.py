# SPDX-License-Identifier: Apache-2.0
"""Products with a scale for each row: every kernel of theirs against the reference, in Triton's interpreter,
and what makes such codes, against float64."""

import math

import numpy as np
import pytest
import torch

from quantrt.gpu import gpu_named
from quantrt.kernels.gemm.spec import TileConfig
from quantrt.kernels.kernel import CompiledKernel
from quantrt.kernels.split_k.spec import SplitConfig, add_kernel_of
from quantrt.quantize.qdq.per_token import LEAST
from quantrt.regions.expression import Expression, Operand
from quantrt.regions.region import Gemm, Rows
from quantrt.runtime.cuda.reference.compute import compute
from quantrt.tactics.cuda.memory_bound.rows import list_tactics as list_rows_tactics
from quantrt.tactics.cuda.products.gemm import list_tactics
from quantrt.tactics.cuda.tactic import Rejected, Tactic, Workload
from tests.kernels.memory_bound import expressions as spelled
from tests.kernels.memory_bound.expressions import TENSOR, Builder, constant, scalar
from tests.kernels.products.gemm_problems import scaled_rows
from tests.kernels.run_tactic import facts_of, run_tactic

H200 = gpu_named("H200")
CAPABILITIES = (80, 86, 89, 90, 100, 120)
SHAPES = [(1, 7, 41), (129, 64, 32), (17, 129, 7), (41, 48, 130)]
"""M, N, K."""

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")


def epilogue(*, has_residual: bool) -> Expression:
    """Sums of codes times the scales of columns and rows, + bias [, GELU, + residual]."""
    b = Builder(
        Operand("accumulator"), TENSOR, constant("bias"), *([TENSOR] * has_residual), constant("scale")
    )
    y = b("add", b("mul", b("mul", 0, 3 + has_residual), 1), 2)
    return b.build(b("add", spelled.gelu_erf(b, y), 3) if has_residual else y)


def product(
    rng: np.random.Generator, M: int, N: int, K: int, *, has_residual: bool, leading: tuple[int, ...] = ()
) -> tuple[Workload, list[torch.Tensor]]:
    """A workload and its inputs: x [*leading, M, K], scales [*leading, M, 1]."""
    x = torch.from_numpy(rng.integers(-127, 128, (*leading, M, K), dtype=np.int8))
    scale = torch.from_numpy(np.float32(10.0) ** rng.uniform(-4, 1, (*leading, M, 1)).astype(np.float32))
    residual = [torch.from_numpy(rng.standard_normal((*leading, M, N), dtype=np.float32)).half()]
    inputs = [x, scale, *residual[: int(has_residual)]]
    constants = {
        "bias": rng.standard_normal(N, dtype=np.float32),
        "scale": rng.uniform(0.5, 1.5, N).astype(np.float32) / np.float32(100 * K**0.5),
    }
    formula = Gemm(("n", 0), ("n", 1), "w", True, epilogue(has_residual=has_residual))
    weight = rng.integers(-127, 128, (N, K), dtype=np.int8)
    facts = tuple(facts_of(tensor) for tensor in inputs)
    return Workload("region", formula, facts, ("float32",), weight, constants), inputs


def expected(workload: Workload, inputs: list[torch.Tensor]) -> np.ndarray:
    """In float64, by numpy."""
    x, scale, *residual = (tensor.double().numpy() for tensor in inputs)
    assert workload.weight is not None
    y = x @ workload.weight.astype(np.float64).T
    y = y * workload.constants["scale"] * scale + workload.constants["bias"]
    if not residual:
        return y
    return y * 0.5 * (1 + np.vectorize(math.erf)(y / np.sqrt(2))) + residual[0]


@pytest.mark.parametrize("has_residual", [False, True])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_every_kernel_multiplies_each_row_with_its_scale(rng, shape, has_residual):
    workload, inputs = product(rng, *shape, has_residual=has_residual)
    wanted = expected(workload, inputs)
    listed = list_tactics(workload, gpu_named("A100"))
    tactics = [item for item in listed if isinstance(item, Tactic) and item.source == "triton"]
    assert tactics, listed
    for tactic in tactics:
        (got,), _ = run_tactic(tactic, inputs)
        # float32: the sums are exact, and three operations are rounded; erf is within 1e-6.
        bound = 4e-6 * np.abs(wanted).max(-1, keepdims=True) + 1e-6
        assert (np.abs(got.numpy() - wanted) <= bound).all(), tactic.name


def test_rows_of_many_axes_have_their_scales(rng):
    workload, inputs = product(rng, 5, 24, 40, has_residual=True, leading=(2, 3))
    (tactic, *_) = (x for x in list_tactics(workload, H200) if isinstance(x, Tactic) and x.source == "triton")
    (got,), _ = run_tactic(tactic, inputs)
    wanted = expected(workload, inputs)
    np.testing.assert_allclose(got.numpy(), wanted, rtol=1e-5, atol=1e-5 * np.abs(wanted).max())
    (reference,) = compute(
        workload.formula,
        inputs,
        workload.outputs,
        torch.from_numpy(workload.weight),
        {name: torch.from_numpy(array) for name, array in workload.constants.items()},
    )
    np.testing.assert_allclose(reference.numpy(), wanted, rtol=1e-5, atol=1e-5 * np.abs(wanted).max())


def test_sums_in_parts_and_hopper_are_tried_too(rng):
    few, _ = product(rng, 16, 1024, 4096, has_residual=False)
    many, _ = product(rng, 12288, 1024, 1024, has_residual=True)
    names = [x.name for workload in (few, many) for x in list_tactics(workload, H200)]
    assert any("split" in name for name in names), names
    assert any("hopper" in name for name in names)
    library = [x for x in list_tactics(many, H200) if x.source == "cublaslt"]
    assert all(not isinstance(x, Rejected) for x in library), library


def test_the_kernel_that_adds_parts_compiles_everywhere(compile_kernels):
    config = SplitConfig(TileConfig(32, 64, 128, 4, 3), 4)
    spec = add_kernel_of(scaled_rows(16, 1024, 4096), config)
    assert isinstance(compile_kernels([spec], CAPABILITIES)[spec], CompiledKernel)


def rows_with_scales() -> Expression:
    """The scale of each row of x, and its codes."""
    b = Builder(TENSOR, scalar(1.0))
    most = b("max", b("row_max", b("abs", 0)), b.const(LEAST))
    scale = b("mul", most, b.const(1 / 127))
    code = b("quantize", b("mul", 0, b("reciprocal", scale)), 1)
    return b.build(scale, code, rows=(True, False))


@pytest.mark.parametrize("shape", [(1, 7), (41, 129), (3, 1024)], ids=str)
def test_codes_of_rows_and_their_scales(rng, shape):
    x = rng.standard_normal(shape, dtype=np.float32) * np.float32(10.0) ** rng.integers(-4, 4, (shape[0], 1))
    x[0] = 0.0
    x = torch.from_numpy(x.astype(np.float32))
    workload = Workload("region", Rows(rows_with_scales()), (facts_of(x),), ("float32", "int8"), None, {})
    for tactic in list_rows_tactics(workload, H200):
        assert isinstance(tactic, Tactic)
        (scale, codes), _ = run_tactic(tactic, [x])
        wanted = np.maximum(np.abs(x.double().numpy()).max(1, keepdims=True), LEAST) / 127
        np.testing.assert_allclose(scale.numpy(), wanted, rtol=3e-7)
        exact = x.double().numpy() / wanted
        assert codes.dtype == torch.int8 and codes.shape == x.shape
        assert (np.abs(codes.double().numpy() - exact) <= 0.5 + 1e-4).all(), tactic.name
        assert (codes.abs().amax(1)[1:] == 127).all() and not codes[0].any()


def test_numbers_between_two_codes_of_scale_1_become_the_even_one():
    x = torch.tensor([[0.5, 1.5, 2.5, -0.5, -1.5, 126.5, 127.5, 300.0, -128.5, -1e30, math.inf, -math.inf]])
    b = Builder(TENSOR, scalar(1.0))
    formula = Rows(b.build(b("quantize", 0, 1)))
    (tactic, *_) = list_rows_tactics(Workload("region", formula, (facts_of(x),), ("int8",), None, {}), H200)
    assert isinstance(tactic, Tactic)
    (codes,), _ = run_tactic(tactic, [x])
    assert codes.tolist() == [[0, 2, 2, 0, -2, 126, 127, 127, -128, -128, 127, -128]]
    (nan,), _ = run_tactic(tactic, [x * math.nan])
    assert set(nan.flatten().tolist()) == {-128}
