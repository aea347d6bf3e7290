"""Outputs of tactics against the reference's: what passes, and what never does."""

from dataclasses import replace

import pytest
import torch

from quantrt.regions.expression import IDENTITY, Instruction
from quantrt.regions.region import Concat, Conv, Pool, PooledConv, Resize, ResizedConv
from quantrt.tactics.cuda.tactic import Tactic, Workload
from quantrt.tactics.cuda.timing.check import FLOAT16_RATIO, check, off_by_one_ratio, poison
from tests.unit.tactics.cuda.workload_samples import facts, int8_gemm, scaled_rows

EXACT = Tactic("triton", "gemm 64x64", ())
CODED = Tactic("triton", "attention coded hopper int8 fp8 2x64x128 s4", ())
FLOATS = Tactic("cublaslt", "gemm dequantized", ())


def reason(workload, tactic, output, want) -> str:
    found = check(workload, tactic, [output], [want])
    return found.reason if found else ""


def codes(count: int = 1000) -> torch.Tensor:
    return (torch.arange(count) % 200 - 100).to(torch.int8)


def test_equal_codes_pass():
    assert reason(int8_gemm(), EXACT, codes(), codes()) == ""


def test_one_wrong_code_is_enough_where_codes_are_exact():
    wrong = codes()
    wrong[17] += 1
    assert "in 1 of 1000 codes, by up to 1" in reason(int8_gemm(), EXACT, wrong, codes())


def test_a_few_codes_may_be_off_by_one_in_floats():
    off = codes()
    off[: int(FLOAT16_RATIO * 1000)] += 1
    assert reason(int8_gemm(), FLOATS, off, codes()) == ""
    off[-1] -= 1
    assert "51 of 1000" in reason(int8_gemm(), FLOATS, off, codes())


def test_no_code_may_be_off_by_two():
    off = codes()
    off[3] += 2
    assert "by up to 2" in reason(int8_gemm(), FLOATS, off, codes())


def test_the_difference_of_codes_does_not_wrap():
    assert "255" in reason(
        int8_gemm(), EXACT, torch.tensor([-128], dtype=torch.int8), torch.tensor([127], dtype=torch.int8)
    )


@pytest.mark.parametrize("op", ["erf", "row_sum", "exp"])
def test_approximated_functions_and_sums_are_not_exact(op: str):
    workload = scaled_rows()
    expression = replace(workload.formula.expression, instructions=(Instruction(op, (0,)),))
    changed = replace(workload, formula=replace(workload.formula, expression=expression))
    assert off_by_one_ratio(workload, EXACT) == 0.0
    assert 0.0 < off_by_one_ratio(changed, EXACT) < 0.01


def test_products_of_floats_are_not_exact():
    assert off_by_one_ratio(int8_gemm(), EXACT) == 0.0
    assert off_by_one_ratio(replace(int8_gemm(), inputs=(facts("float16", 7, 41),)), EXACT) == FLOAT16_RATIO


CONV = Conv(("c", 0), ("c", 1), "w", (1, 1), (1, 1), (0, 0, 0, 0), 1, int8_gemm().formula.epilogue)
POOL = Pool(("p", 0), "max", (2, 2), (2, 2), (1, 1), (0,) * 4, False, False, False, True, IDENTITY)


@pytest.mark.parametrize(
    "formula",
    [CONV, PooledConv(CONV, POOL), ResizedConv(Resize(("r", 0), True, (2.0, 2.0), False, IDENTITY), CONV)],
    ids=lambda formula: type(formula).__name__,
)
def test_convolutions_of_codes_are_exact_and_those_of_floats_are_not(formula: object):
    codes, floats = (
        Workload("region", formula, (facts(dtype, 1, 8, 9, 9),), ("int8",)) for dtype in ("int8", "float16")
    )
    assert (off_by_one_ratio(codes, EXACT), off_by_one_ratio(floats, EXACT)) == (0.0, FLOAT16_RATIO)


def test_codes_that_are_put_side_by_side_are_exact():
    workload = Workload("region", Concat((("a", 0), ("b", 0)), 1), (facts("int8", 1, 8),) * 2, ("int8",))
    assert off_by_one_ratio(workload, EXACT) == 0.0


@pytest.mark.parametrize(
    ("dtype", "good", "bad"),
    [(torch.float32, 5e-5, 1e-3), (torch.float16, 2e-3, 3e-2), (torch.bfloat16, 2e-2, 0.2)],
    ids=str,
)
def test_floats_pass_within_the_bound_of_their_type(dtype: torch.dtype, good: float, bad: float):
    want = torch.randn(500, generator=torch.Generator().manual_seed(1))
    for error, passes in ((0.0, True), (good, True), (bad, False)):
        off = want.clone()
        off[7] += error
        found = reason(scaled_rows(), EXACT, off.to(dtype), want.to(dtype))
        assert (found == "") == passes, found


@pytest.mark.parametrize(
    ("dtype", "good", "bad"),
    [(torch.float32, 1.9e-4, 2.1e-4), (torch.float16, 7.8e-3, 8.8e-3), (torch.bfloat16, 0.0547, 0.0625)],
    ids=str,
)
def test_a_float_may_be_off_by_both_parts_of_its_bound_and_no_more(
    dtype: torch.dtype, good: float, bad: float
):
    """Of ones, whose size is 1 too: 1e-4, 4e-3 and 3e-2, each twice; the numbers tried are of the type."""
    want = torch.ones(500, dtype=dtype)
    for error, passes in ((good, True), (bad, False)):
        off = want.clone()
        off[7] += error
        assert (reason(scaled_rows(), EXACT, off, want) == "") == passes


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16], ids=str)
def test_sums_of_fp8_have_a_bound_of_their_own(dtype: torch.dtype):
    want = torch.ones(500, dtype=dtype)
    off = want.clone()
    off[7] += 0.016  # within 1e-2 of itself and 1e-2 of the size of all
    assert reason(fp8_gemm(is_gated=False), EXACT, off, want) == ""
    off[7] += 0.016
    assert reason(fp8_gemm(is_gated=False), EXACT, off, want)
    if dtype != torch.bfloat16:  # which is that coarse itself
        floats = replace(int8_gemm(), inputs=(facts("float16", 7, 41),))
        off[7] -= 0.016
        assert reason(floats, EXACT, off, want)


def test_numbers_of_fp8_are_counted_through_zero():
    """The least positive one and the least negative one are two apart, as 448 and 416 are one."""
    want, got = (torch.tensor([bits], dtype=torch.uint8).view(torch.float8_e4m3fn) for bits in (0x01, 0x81))
    assert "1 of 1 codes, by up to 2" in reason(scaled_rows(), EXACT, got, want)
    want, got = (torch.tensor([value]).to(torch.float8_e4m3fn) for value in (448.0, 416.0))
    assert "1 of 1 codes, by up to 1" in reason(scaled_rows(), EXACT, got, want)


def test_nan_never_passes_for_a_number():
    want = torch.ones(9)
    off = want.clone()
    off[4] = float("nan")
    assert "1 NaN or unwritten elements of 9" in reason(scaled_rows(), EXACT, off, want)


def test_nan_passes_for_nan_alone():
    want = torch.tensor([1.0, float("nan"), 2.0])
    assert reason(scaled_rows(), EXACT, want.clone(), want) == ""
    assert reason(scaled_rows(), EXACT, torch.tensor([1.0, 0.0, 2.0]), want)


def test_infinities_must_agree():
    want = torch.tensor([1.0, float("inf"), -float("inf")], dtype=torch.float16)
    assert reason(scaled_rows(), EXACT, want.clone(), want) == ""
    assert reason(scaled_rows(), EXACT, -want, want)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.int8, torch.bool], ids=str)
def test_what_was_never_written_shows(dtype: torch.dtype):
    want = torch.zeros(64, dtype=dtype)
    assert reason(scaled_rows(), EXACT, poison(torch.empty(64, dtype=dtype)), want)


def test_shapes_and_types_must_agree():
    want = torch.zeros(4, 2)
    assert "float32[2, 4] instead of float32[4, 2]" in reason(scaled_rows(), EXACT, torch.zeros(2, 4), want)
    assert "float16" in reason(scaled_rows(), EXACT, want.half(), want)
    assert check(scaled_rows(), EXACT, [], [want]).reason == "gives 0 outputs instead of 1"


def fp8_gemm(*, is_gated: bool) -> Workload:
    gemm = int8_gemm()
    formula = replace(gemm.formula, is_gated=is_gated)
    return replace(gemm, formula=formula, inputs=(facts("float8_e4m3fn", 7, 41),))


def gated_codes(error_ratio: float) -> tuple[torch.Tensor, torch.Tensor]:
    """GEGLU of half a million pairs of normal sums in E4M3; of sums that are off, and of the right ones."""
    generator = torch.Generator().manual_seed(5)
    left, right, *errors = (torch.randn(500_000, generator=generator) for _ in range(4))
    want = left * torch.nn.functional.gelu(right)
    off = [x + error_ratio * error for x, error in zip((left, right), errors, strict=True)]
    got = off[0] * torch.nn.functional.gelu(off[1])
    scale = want.abs().max() / 448
    return (got / scale).to(torch.float8_e4m3fn), (want / scale).to(torch.float8_e4m3fn)


def test_behind_a_gate_an_error_of_sums_may_be_two_steps_of_fp8():
    got, want = gated_codes(0.0018)
    assert "by up to" in reason(fp8_gemm(is_gated=False), EXACT, got, want)
    assert reason(fp8_gemm(is_gated=True), EXACT, got, want) == ""


def test_more_than_sums_of_fp8_may_be_off_is_told_behind_a_gate_too():
    got, want = gated_codes(0.01)
    assert "codes, by up to" in reason(fp8_gemm(is_gated=True), EXACT, got, want)


@pytest.mark.parametrize("value", [0.0, 20.0, float("nan")])
def test_one_wrong_code_behind_a_gate_is_enough(value: float):
    _, want = gated_codes(0.0)
    got = want.float()
    got[17] = value if value != 0.0 else -got[17] + 8.0
    told = reason(fp8_gemm(is_gated=True), EXACT, got.to(torch.float8_e4m3fn), want)
    assert "in 1 of 500000 codes" in told


def test_nan_is_not_next_to_the_largest_number_of_fp8():
    want = torch.full((1000,), 448.0).to(torch.float8_e4m3fn)
    got = want.float()
    got[3] = float("nan")
    assert reason(fp8_gemm(is_gated=True), EXACT, got.to(torch.float8_e4m3fn), want)


def test_empty_outputs_pass():
    assert reason(scaled_rows(), EXACT, torch.zeros(0, 3), torch.zeros(0, 3)) == ""


def attended(inputs: list[torch.Tensor], *, coded: bool, wrong_scale: float = 1.0) -> torch.Tensor:
    """Attention of [heads, length, 64], in double; coded: factors rounded as the kernels round them."""
    q, k, v = (x.double() for x in inputs)
    if coded:
        k = k - k.mean(1, keepdim=True)
        q, k = (_rounded(q, 1), _rounded(k, 128))
        v = torch.cat([*(x / 448 * _fp8(448 * y) for x, y in _blocks(v))], 1)
    scores = q @ k.mT / 8
    scores[:, :, :128] *= wrong_scale
    weights = scores.softmax(-1)
    if coded:
        top = weights.amax(-1, keepdim=True)
        weights = _fp8(weights / top * 256) * top / 256
    return (weights @ v).half()


def _rounded(x: torch.Tensor, rows: int) -> torch.Tensor:
    blocks = x.reshape(x.shape[0], -1, rows * x.shape[-1])
    step = blocks.abs().amax(-1, keepdim=True) / 127
    return (torch.round(blocks / step) * step).reshape(x.shape)


def _blocks(v: torch.Tensor):
    for block in v.split(128, 1):
        top = block.abs().amax((1, 2), keepdim=True)
        yield top, block / top


def _fp8(x: torch.Tensor) -> torch.Tensor:
    return x.float().to(torch.float8_e4m3fn).double()


def test_attention_over_codes_may_be_off_by_what_its_formats_round():
    generator = torch.Generator().manual_seed(0)
    inputs = [torch.randn(2, 512, 64, generator=generator) for _ in range(3)]
    want, got = (attended(inputs, coded=coded) for coded in (False, True))
    assert reason(int8_gemm(), CODED, got, want) == ""
    assert "differs" in reason(int8_gemm(), EXACT, got, want)
    bad = got.clone()
    bad[1, 17] = got[1, 18]
    assert "1 of 1024 rows by much" in reason(int8_gemm(), CODED, bad, want)
    assert "of its size" in reason(int8_gemm(), CODED, attended(inputs, coded=True, wrong_scale=1.5), want)
    assert "of its size" in reason(int8_gemm(), CODED, (0.85 * got.float()).half(), want)
    assert "of its size" in reason(int8_gemm(), CODED, poison(got.clone()), want)


def test_attention_over_codes_that_is_stored_as_codes():
    generator = torch.Generator().manual_seed(1)
    inputs = [torch.randn(2, 512, 64, generator=generator) for _ in range(3)]
    want, got = (attended(inputs, coded=coded).float() for coded in (False, True))
    for steps in (127, 4):
        scale = float(want.abs().max()) / steps
        a, b = (torch.round(x / scale).clamp(-128, 127).to(torch.int8) for x in (got, want))
        assert reason(int8_gemm(), CODED, a, b) == ""
        assert "of its size" in reason(int8_gemm(), CODED, a.roll(1, 1), b)
