# SPDX-License-Identifier: Apache-2.0
"""Kernels on FP8 codes, in Triton's interpreter, against the reference: every code of it, and products."""

from dataclasses import replace

import ml_dtypes
import numpy as np
import pytest
import torch

from quantrt.dtypes import FP8
from quantrt.gpu import gpu_named
from quantrt.kernels.gemm.tiles import configs
from quantrt.regions.expression import Expression
from quantrt.regions.region import Gemm, Rows
from quantrt.runtime.cuda.reference.compute import compute
from quantrt.tactics.cuda.candidates import list_tactics
from quantrt.tactics.cuda.products import gemm
from quantrt.tactics.cuda.products.product import product_of
from quantrt.tactics.cuda.tactic import Rejected, Tactic, Workload
from quantrt.tactics.cuda.timing.check import check
from quantrt.tactics.cuda.timing.trial import Device, Trial, try_tactics
from quantrt.tactics.cuda.tuning.prune import prune
from tests.kernels.memory_bound import expressions as spelled
from tests.kernels.memory_bound.expressions import TENSOR, Builder, constant, scalar
from tests.kernels.products.gemm_problems import RIGHT, SUM
from tests.kernels.run_tactic import facts_of, run_tactic

H200, A100 = gpu_named("H200"), gpu_named("A100")
CODES = torch.float8_e4m3fn

# numpy warns where IEEE 754 goes on with infinities and NaN; a GPU does not.
pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")

EVERY_CODE = torch.arange(256, dtype=torch.uint8).view(CODES)


def rows_of(expression: Expression, inputs: list[torch.Tensor], *outputs: str) -> Workload:
    return Workload("r", Rows(expression), tuple(map(facts_of, inputs)), outputs)


def run(workload: Workload, inputs: list[torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor]:
    """What the first kernel and the reference make."""
    tactic = next(row for row in list_tactics(workload, H200) if isinstance(row, Tactic))
    assert tactic.source == "triton"
    (got,), _ = run_tactic(tactic, inputs)
    (want,) = compute(workload.formula, inputs, workload.outputs)
    return got, want


def values() -> np.ndarray:
    """Every number of FP8, everything halfway between two, the neighbours of these, and what is beyond."""
    numbers = np.unique(EVERY_CODE.view(torch.uint8).numpy().view(ml_dtypes.float8_e4m3fn).astype(np.float32))
    numbers = numbers[np.isfinite(numbers)]
    halves = (numbers[1:] + numbers[:-1]) / 2
    around = [np.nextafter(halves, np.float32(side)) for side in (-np.inf, np.inf)]
    beyond = np.float32([449, 464, 465, 480, 1e9, np.inf, np.nan, 1e-40, 2**-11, 0.0])
    return np.concatenate([numbers, halves, *around, beyond, -beyond]).astype(np.float32)


@pytest.mark.parametrize("is_near", [False, True])
@pytest.mark.parametrize("scale", [1.0, 0.25, 0.0371])
def test_codes_are_those_of_the_reference(scale: float, is_near: bool):
    x = torch.from_numpy(values() * np.float32(scale))
    b = Builder(TENSOR, scalar(scale))
    value = b("exp", b("log", 0)) if is_near and scale == 1.0 else 0
    if value:  # not rounded: by a product with the reciprocal, here 1
        x = x[(x >= 0) | x.isnan()]
    got, want = run(rows_of(b.build(b("quantize_fp8", value, 1)), [x], FP8.name), [x])
    assert got.dtype == want.dtype == CODES
    assert torch.equal(got.float().isnan(), want.float().isnan())
    is_number = ~want.float().isnan()
    differ = got.view(torch.uint8)[is_number] != want.view(torch.uint8)[is_number]
    assert int(differ.sum()) <= (differ.numel() // 4 if value else 0)  # exp(log x) is not x


def test_halves_are_rounded_to_even_and_nan_stays():
    x = torch.tensor([17.0, 19.0, 1.0625, 1.1875, 2**-10, 3 * 2**-10, 1e9, -np.inf, np.nan, -np.nan])
    b = Builder(TENSOR, scalar(1.0))
    got, _ = run(rows_of(b.build(b("quantize_fp8", 0, 1)), [x], FP8.name), [x])
    assert got.float()[:8].tolist() == [16.0, 20.0, 1.0, 1.25, 0.0, 2 * 2**-9, 448.0, -448.0]
    assert got.float()[8:].isnan().all()


def test_every_code_is_read_as_what_it_stands_for():
    b = Builder(TENSOR, scalar(0.5))
    got, want = run(rows_of(b.build(b("mul", 0, 1)), [EVERY_CODE], "float32"), [EVERY_CODE])
    assert torch.equal(got, want) or torch.equal(got.nan_to_num(7.0), want.nan_to_num(7.0))
    assert int(got.isnan().sum()) == 2


def test_a_rounded_value_goes_on_as_a_float():
    x = torch.from_numpy(values())
    b = Builder(TENSOR, scalar(1.0))
    y = b("add", b("quantize_fp8", 0, 1), b.const(0.5))
    got, want = run(rows_of(b.build(y), [x], "float32"), [x])
    assert torch.equal(got.nan_to_num(7.0), want.nan_to_num(7.0))


def codes(rng: np.random.Generator, *shape: int) -> torch.Tensor:
    return torch.from_numpy(rng.standard_normal(shape, dtype=np.float32) * 60).clamp(-448, 448).to(CODES)


def product(
    rng: np.random.Generator,
    shape: tuple[int, int, int],
    epilogue: Expression,
    outputs: tuple[str, ...],
    *,
    is_gated: bool = False,
) -> tuple[Workload, list[torch.Tensor], list[torch.Tensor]]:
    """A workload, its inputs, and what the reference makes of them."""
    M, N, K = shape
    columns = 2 * N if is_gated else N
    x, weight = codes(rng, M, K), codes(rng, columns, K)
    names = [operand.name for operand in epilogue.operands if operand.kind == "constant"]
    scale = 1.0 / (60 * 60 * K**0.5)
    constants = {
        name: torch.from_numpy(rng.uniform(0.5, 1.5, N).astype(np.float32))
        * (scale if "scale" in name else 1)
        for name in names
    }
    formula = Gemm(("n", 0), ("n", 1), "w", True, epilogue, is_gated=is_gated)
    array = weight.view(torch.uint8).numpy().view(ml_dtypes.float8_e4m3fn)
    arrays = {name: value.numpy() for name, value in constants.items()}
    workload = Workload("r", formula, (facts_of(x),), outputs, array, arrays)
    return workload, [x], compute(formula, [x], outputs, weight, constants)


def biased(*, is_requantized: bool) -> Expression:
    b = Builder(SUM, constant("scale"), constant("bias"), scalar(1 / 64))
    y = b("add", b("mul", 0, 1), 2)
    return b.build(b("quantize_fp8", y, 3) if is_requantized else y)


def gate() -> Expression:
    b = Builder(SUM, RIGHT, constant("scale"), constant("right scale"), scalar(1 / 64))
    y = b("mul", spelled.silu(b, b("mul", 0, 2)), b("mul", 1, 3))
    return b.build(b("quantize_fp8", y, 4))


@pytest.mark.parametrize("shape", [(1, 7, 41), (129, 64, 32), (17, 129, 7), (41, 48, 130)], ids=str)
@pytest.mark.parametrize("output", [FP8.name, "float16"])
def test_our_product(rng: np.random.Generator, shape: tuple[int, int, int], output: str):
    workload, inputs, want = product(rng, shape, biased(is_requantized=output == FP8.name), (output,))
    tactics = [row for row in list_tactics(workload, H200) if isinstance(row, Tactic)]
    ours = [row for row in tactics if row.source == "triton"]
    assert any(row.name.endswith("promoted") for row in ours)
    for tactic in (ours[0], ours[-1]):
        got, _ = run_tactic(tactic, inputs)
        assert got[0].dtype == want[0].dtype
        assert check(workload, tactic, got, want) is None, tactic.name


def test_sums_in_parts(rng: np.random.Generator):
    workload, inputs, want = product(rng, (4, 32, 4096), biased(is_requantized=True), (FP8.name,))
    tactic = next(row for row in gemm.list_tactics(workload, H200) if "split" in row.name)
    got, _ = run_tactic(tactic, inputs)
    assert check(workload, tactic, got, want) is None


def test_a_gate(rng: np.random.Generator):
    workload, inputs, want = product(rng, (9, 32, 64), gate(), (FP8.name,), is_gated=True)
    for tactic in [row for row in list_tactics(workload, H200) if isinstance(row, Tactic)]:
        if tactic.source == "cublaslt" or tactic.name.startswith("gemm 16x"):
            got, _ = run_tactic(tactic, inputs)
            assert check(workload, tactic, got, want) is None, tactic.name


@pytest.mark.parametrize("shape", [(5, 48, 64), (40, 32, 1024)], ids=str)
def test_the_library_product_evaluates_what_codes_stand_for(
    rng: np.random.Generator, shape: tuple[int, int, int]
):
    workload, inputs, want = product(rng, shape, biased(is_requantized=True), (FP8.name,))
    tactics = [row for row in list_tactics(workload, H200) if row.source == "cublaslt"]
    assert [row.name for row in tactics] == ["matmul fast, rows", "matmul, rows"]
    for tactic in tactics:
        got, _ = run_tactic(tactic, inputs)
        assert check(workload, tactic, got, want) is None


def test_the_library_wants_multiples_of_16(rng: np.random.Generator):
    workload, inputs, want = product(rng, (5, 40, 72), biased(is_requantized=True), (FP8.name,))
    rejected, tactic = [row for row in list_tactics(workload, H200) if row.source == "cublaslt"]
    assert rejected.reason == "a weight of 40 by 72: multiples of 16 for fp8"
    assert "dequantized" in tactic.name
    got, _ = run_tactic(tactic, inputs)
    assert check(workload, tactic, got, want) is None


def test_before_ada_there_is_the_reference_alone(rng: np.random.Generator):
    workload, inputs, want = product(rng, (5, 48, 64), biased(is_requantized=True), (FP8.name,))
    rejected, reference = list_tactics(workload, A100)
    assert isinstance(rejected, Rejected)
    assert rejected.reason == "no fp8 codes on compute capability 80: 89 is the least"
    got, _ = run_tactic(reference, inputs)
    assert check(workload, reference, got, want) is None
    found = product_of(workload)
    assert not isinstance(found, str)
    assert "fp8 products on compute capability 80" in (gemm.why_not(gemm.problem_of(found), A100) or "")


def test_wrong_codes_are_found(rng: np.random.Generator):
    workload, _, (want,) = product(rng, (64, 64, 64), biased(is_requantized=True), (FP8.name,))
    reference = list_tactics(workload, H200)[-1]
    assert check(workload, reference, [want.clone()], [want]) is None
    for change in ("one far off", "many off by one", "a NaN"):
        bits = want.clone().view(torch.uint8)
        if change == "one far off":
            bits[0, 0] ^= 0x80
        elif change == "many off by one":
            bits[:32] ^= 1
        else:
            bits[3, 3] = 0x7F
        found = check(workload, reference, [bits.view(CODES)], [want])
        assert found is not None, change
        assert "differs from the reference" in found.reason


def test_only_hopper_promotes(rng: np.random.Generator):
    workload, _, _ = product(rng, (4096, 1024, 1024), biased(is_requantized=True), (FP8.name,))
    found = product_of(workload)
    assert not isinstance(found, str)
    problem = gemm.problem_of(found)
    for name, count in (("H200", 2), ("L4", 0), ("B200", 0)):
        tiles = configs(problem, gpu_named(name))
        assert sum(tile.promotes for tile in tiles) == count, name
        assert all(tile.accumulators <= 64 for tile in tiles if tile.promotes)


@pytest.mark.parametrize(("terms", "count"), [(3072, 0), (4096, 2), (8192, 2)])
def test_long_sums_are_promoted_first(rng: np.random.Generator, terms: int, count: int):
    """By the tactics that a build of level 3 tries; their weight is not looked at."""
    workload, _, _ = product(rng, (1, 1, 32), biased(is_requantized=True), (FP8.name,))
    assert isinstance(workload.formula, Gemm)
    x = replace(workload.inputs[0], shape=(8192, terms), strides=(terms, 1))
    long = replace(workload, inputs=(x,), weight=np.zeros((4096, terms), ml_dtypes.float8_e4m3fn))
    kept = prune(list_tactics(long, H200), 3).kept
    ours = [tactic.name for tactic in kept if tactic.source == "triton"]
    assert ["promoted" in name.split() for name in ours[: count + 1]] == [True] * count + [False]


def test_a_trial_takes_fp8_weights(rng: np.random.Generator):
    workload, inputs, want = product(rng, (17, 48, 64), biased(is_requantized=True), (FP8.name,))
    trial = Trial.begin(workload, Device(torch.device("cpu")), {}, inputs)
    assert torch.equal(trial.expected[0].float(), want[0].float())
    listed = [row for row in list_tactics(workload, H200) if isinstance(row, Tactic)]
    tactics = [row for row in listed if row.name.startswith("gemm ")][:2]  # others have no interpreter
    assert len(tactics) == 2
    verdicts = try_tactics(trial, tactics)
    assert all(verdict.timing is not None for verdict in verdicts.values()), verdicts
