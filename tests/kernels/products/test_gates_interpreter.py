# SPDX-License-Identifier: Apache-2.0
"""Products with gated activations against the reference, ours in Triton's interpreter and the library's."""

import numpy as np
import pytest
import torch

from quantrt.gpu import gpu_named
from quantrt.kernels.gemm.tiles import configs
from quantrt.regions.expression import Expression
from quantrt.regions.region import Gemm
from quantrt.runtime.cuda.reference.compute import compute
from quantrt.tactics.cuda.products.gemm import list_tactics
from quantrt.tactics.cuda.products.product import problem_of, product_of
from quantrt.tactics.cuda.tactic import Tactic, Workload
from tests.kernels.memory_bound import expressions as spelled
from tests.kernels.memory_bound.expressions import TENSOR, Builder, constant, scalar
from tests.kernels.products.gemm_problems import RIGHT, SUM
from tests.kernels.run_tactic import facts_of, run_tactic

H200 = gpu_named("H200")
SHAPES = [(1, 7, 41), (129, 64, 32), (17, 129, 7), (41, 1, 130), (0, 8, 8)]
"""M, N, K."""
CODES = 2e-3
"""Share of codes that may be off by one where exp or erf are computed otherwise."""

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")


def swiglu() -> Expression:
    b = Builder(SUM, RIGHT)
    return b.build(b("mul", spelled.silu(b, 0), 1))


def geglu(*, has_residual: bool = False) -> Expression:
    """Both halves with a bias, the right one bent, codes out of floats."""
    extra = (TENSOR,) if has_residual else ()
    b = Builder(SUM, RIGHT, constant("bias"), constant("right bias"), *extra)
    y = b("mul", b("add", 0, 2), spelled.gelu_erf(b, b("add", 1, 3)))
    return b.build(b("add", y, 4) if has_residual else y)


def codes_out(*, keeps_floats: bool = False) -> Expression:
    """ReLU for the gate: nothing but rounded operations, so that codes are equal."""
    names = ("scale", "right scale", "bias", "right bias")
    b = Builder(SUM, RIGHT, *map(constant, names), scalar(0.05))
    left, right = b("add", b("mul", 0, 2), 4), b("add", b("mul", 1, 3), 5)
    y = b("mul", b("max", left, b.const(0.0)), right)
    code = b("quantize", y, 6)
    return b.build(y, code) if keeps_floats else b.build(code)


def workload_of(epilogue, inputs, weight, outputs, *, is_transposed=True, **constants) -> Workload:
    formula = Gemm(("n", 0), ("n", 1), "w", is_transposed, epilogue, is_gated=True)
    arrays = {name: tensor.numpy() for name, tensor in constants.items()}
    facts = tuple(facts_of(tensor) for tensor in inputs)
    return Workload("region", formula, facts, tuple(outputs), weight.numpy(), arrays)


def floats(rng, *shape, dtype=torch.float16) -> torch.Tensor:
    return torch.from_numpy(rng.standard_normal(shape, dtype=np.float32)).to(dtype)


def code_operands(rng, M, N, K):
    x = torch.from_numpy(rng.integers(-128, 128, (M, K), dtype=np.int8))
    weight = torch.from_numpy(rng.integers(-127, 128, (2 * N, K), dtype=np.int8))
    scales = {
        name: rng.uniform(0.5, 1.5, N).astype(np.float32) * 2e-4 / K**0.5 for name in ("scale", "right scale")
    }
    biases = {name: rng.standard_normal(N).astype(np.float32) for name in ("bias", "right bias")}
    return x, weight, {name: torch.from_numpy(array) for name, array in (scales | biases).items()}


def both(workload, inputs, weight, constants, source="triton", number=0):
    """What the tactic gives, and what the reference gives."""
    tactics = [
        row for row in list_tactics(workload, H200) if isinstance(row, Tactic) and row.source == source
    ]
    got, _ = run_tactic(tactics[number], inputs)
    stored = weight.to(inputs[0].dtype)
    return got, compute(workload.formula, inputs, workload.outputs, stored, constants)


def assert_near(got, want, *, ulps):
    step = {torch.float16: 2.0**-10, torch.float32: 2.0**-23}[want.dtype]
    assert got.shape == want.shape and got.dtype == want.dtype
    if want.numel():
        assert (got.double() - want.double()).abs().max() <= ulps * step * want.double().abs().max()


@pytest.mark.parametrize("source", ["triton", "cublaslt"])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_swiglu_of_floats(rng, shape, source):
    M, N, K = shape
    x, weight = floats(rng, M, K), floats(rng, 2 * N, K)
    got, want = both(workload_of(swiglu(), [x], weight, ["float16"]), [x], weight, {}, source)
    assert_near(got[0], want[0], ulps=1 if source == "triton" else 4)


@pytest.mark.parametrize("has_residual", [False, True])
@pytest.mark.parametrize("source", ["triton", "cublaslt"])
@pytest.mark.parametrize("shape", SHAPES[:3], ids=str)
def test_geglu_with_biases(rng, shape, source, has_residual):
    M, N, K = shape
    x, weight = floats(rng, 2, M, K), floats(rng, K, 2 * N)
    biases = {name: floats(rng, N, dtype=torch.float32) for name in ("bias", "right bias")}
    inputs = [x, floats(rng, 2, M, N)] if has_residual else [x]
    case = workload_of(
        geglu(has_residual=has_residual), inputs, weight, ["float16"], is_transposed=False, **biases
    )
    got, want = both(case, inputs, weight, biases, source)
    assert_near(got[0], want[0], ulps=1 if source == "triton" else 4)


@pytest.mark.parametrize("keeps_floats", [False, True])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_codes_are_equal(rng, shape, keeps_floats):
    x, weight, constants = code_operands(rng, *shape)
    outputs = ["float16", "int8"] if keeps_floats else ["int8"]
    case = workload_of(codes_out(keeps_floats=keeps_floats), [x], weight, outputs, **constants)
    got, want = both(case, [x], weight, constants)
    for one, other in zip(got, want, strict=True):
        assert torch.equal(one, other)
    assert not want[-1].numel() or want[-1].unique().numel() > min(want[-1].numel(), 30) / 4


def test_codes_of_the_library_are_equal(rng):
    x, weight, constants = code_operands(rng, 24, 16, 64)
    case = workload_of(codes_out(), [x], weight, ["int8"], **constants)
    got, want = both(case, [x], weight, constants, "cublaslt")
    assert torch.equal(got[0], want[0])


@pytest.mark.parametrize("shape", [(40_000, 125, 96), (4096, 192, 160)], ids=str)
def test_every_tile_gives_the_same_codes(rng, shape):
    M, N, K = shape
    x, weight, constants = code_operands(rng, 70, N, K)
    case = workload_of(codes_out(keeps_floats=True), [x], weight, ["float16", "int8"], **constants)
    many = workload_of(
        codes_out(keeps_floats=True), [x.expand(M // 70 + 1, 70, K)], weight, ["float16", "int8"], **constants
    )
    problem = problem_of(product_of(many))
    assert len({(c.block_m, c.block_n) for c in configs(problem, H200)}) > 2
    tactics = [row for row in list_tactics(many, H200) if isinstance(row, Tactic) and row.source == "triton"]
    tactics = [x for x in tactics if x.drafts[0].runner != "gemm_hopper"]  # no interpreter runs it
    want = compute(case.formula, [x], case.outputs, weight, constants)
    for tactic in tactics[:4]:
        got, _ = run_tactic(tactic, [x])
        assert all(torch.equal(one, other) for one, other in zip(got, want, strict=True)), tactic.name


def test_float32(rng):
    x, weight = floats(rng, 9, 33, dtype=torch.float32), floats(rng, 22, 33, dtype=torch.float32)
    case = workload_of(swiglu(), [x], weight, ["float32"])
    for source in ("triton", "cublaslt"):
        got, want = both(case, [x], weight, {}, source)
        assert_near(got[0], want[0], ulps=16)
