# SPDX-License-Identifier: Apache-2.0
"""Rows regions through their tactics and their runner, against the reference, in Triton's interpreter."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pytest
import torch

from quantrt.errors import DataError
from quantrt.gpu import gpu_named
from quantrt.regions.expression import Expression
from quantrt.regions.region import Rows
from quantrt.runtime.cuda.reference.compute import compute
from quantrt.tactics.cuda.memory_bound.rows import list_tactics
from quantrt.tactics.cuda.tactic import Rejected, Tactic, Workload
from tests.kernels.memory_bound import expressions as spelled
from tests.kernels.memory_bound.expressions import TENSOR, Builder, constant, scalar
from tests.kernels.run_tactic import facts_of, run_tactic

H200 = gpu_named("H200")

# numpy warns where IEEE 754 goes on with infinities and NaN; a GPU does not.
pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")

ULP = {torch.float16: 2.0**-10, torch.bfloat16: 2.0**-7, torch.float32: 2.0**-23}
SMALLEST = {torch.float16: 2.0**-24, torch.bfloat16: 2.0**-133, torch.float32: 2.0**-149}
"""Distance of neighbours, relative to a number and for those near 0."""


def workload(
    expression: Expression,
    inputs: Sequence[torch.Tensor],
    outputs: Sequence[str],
    constants: dict[str, np.ndarray] | None = None,
) -> Workload:
    facts = tuple(facts_of(tensor) for tensor in inputs)
    return Workload("region", Rows(expression), facts, tuple(outputs), None, constants or {})


def tactics_of(wanted: Workload) -> list[Tactic]:
    found = list_tactics(wanted, H200)
    assert all(isinstance(tactic, Tactic) for tactic in found)
    return found


def reference(wanted: Workload, inputs: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    constants = {name: torch.from_numpy(array) for name, array in wanted.constants.items()}
    return compute(wanted.formula, inputs, wanted.outputs, None, constants)


def assert_near(got: torch.Tensor, want: torch.Tensor, ulps: int, absolute: float = 0.0) -> None:
    """NaN where NaN; codes and truth at most `ulps` - 1 apart; floats `ulps` neighbours and `absolute`."""
    assert got.shape == want.shape
    assert got.dtype == want.dtype
    if got.dtype in ULP:
        assert torch.equal(got.isnan(), want.isnan())
        same = (got == want) | got.isnan()
        allowed = ulps * (ULP[got.dtype] * want.double().abs() + SMALLEST[got.dtype]) + absolute
        assert bool((same | ((got.double() - want.double()).abs() <= allowed)).all())
    else:
        assert int((got.int() - want.int()).abs().max()) <= ulps - 1


@dataclass(frozen=True)
class Case:
    """One expression on inputs of some shapes.

    Attributes:
        ulps: 1 where each element depends on few operations: floats differ by one rounding at most, codes not
            at all; 2 behind sums, which are in another order than the reference's.
        absolute: float32 roundings, 6e-8, of terms of up to 16 that cancel.
    """

    name: str
    make: Callable[[np.random.Generator], tuple[Expression, list[torch.Tensor], dict[str, np.ndarray]]]
    outputs: tuple[str, ...]
    ulps: int = 1
    absolute: float = 0.0


def tensor(rng: np.random.Generator, *shape: int, dtype: str = "float16", scale: float = 2.0) -> torch.Tensor:
    return torch.from_numpy((rng.standard_normal(shape) * scale).astype(np.float32)).to(getattr(torch, dtype))


def channels_last(x: torch.Tensor) -> torch.Tensor:
    return x.to(memory_format=torch.channels_last)


def affine(rng: np.random.Generator, columns: int) -> dict[str, np.ndarray]:
    return {
        "gamma": rng.uniform(0.5, 1.5, columns).astype(np.float32),
        "beta": rng.standard_normal(columns).astype(np.float32),
    }


def norm_case(columns: int):
    def make(rng: np.random.Generator):
        b = Builder(TENSOR, constant("gamma"), constant("beta"), scalar(1e-5))
        expression = b.build(spelled.layer_norm(b, 0, 1, 2, 3))
        return expression, [tensor(rng, 2, 3, columns)], affine(rng, columns)

    return make


def rms_case(rng: np.random.Generator):
    b = Builder(TENSOR, constant("gamma"), scalar(1e-6))
    gamma = {"gamma": affine(rng, 129)["gamma"]}
    return b.build(spelled.rms_norm(b, 0, 1, 2)), [tensor(rng, 7, 129, dtype="bfloat16")], gamma


def skip_case(rng: np.random.Generator):
    b = Builder(TENSOR, TENSOR, constant("gamma"), constant("beta"), scalar(1e-5), scalar(0.031))
    added = b("add", 0, 1)
    norm = spelled.layer_norm(b, added, 2, 3, 4)
    return (
        b.build(added, b("quantize", norm, 5)),
        [tensor(rng, 1, 5, 64), tensor(rng, 1, 5, 64)],
        affine(rng, 64),
    )


def softmax_case(rng: np.random.Generator):
    b = Builder(TENSOR, scalar(0.125), TENSOR)
    scores = b("add", b("mul", 0, 1), 2)
    mask = torch.zeros(2, 1, 1, 17).half()
    mask[1, ..., 9:] = float("-inf")
    return b.build(spelled.softmax(b, scores)), [tensor(rng, 2, 3, 5, 17, scale=20.0), mask], {}


def activation_case(spell: Callable[[Builder, int], int]):
    def make(rng: np.random.Generator):
        b = Builder(TENSOR)
        return b.build(spell(b, 0)), [tensor(rng, 3, 1, 257, scale=4.0)], {}

    return make


def gate_case(rng: np.random.Generator):
    b = Builder(TENSOR, TENSOR)
    return (
        b.build(b("mul", 0, 1)),
        [channels_last(tensor(rng, 2, 24, 5, 3)), tensor(rng, 2, 24, 1, 1, scale=1.0)],
        {},
    )


def channel_case(rng: np.random.Generator):
    b = Builder(TENSOR, constant("slope"))
    below = b("mul", 0, 1)
    slope = {"slope": rng.uniform(0, 1, (16, 1, 1)).astype(np.float32)}
    return (
        b.build(b("where", b("lt", 0, b.const(0.0)), below, 0)),
        [channels_last(tensor(rng, 2, 16, 3, 7))],
        slope,
    )


def compare_case(rng: np.random.Generator):
    b = Builder(TENSOR, TENSOR, scalar(0.5))
    both = b("and", b("gt", 0, 2), b("not", b("le", 1, 0)))
    return b.build(both, b("xor", both, 1)), [tensor(rng, 4, 1, 9), torch.arange(3).view(3, 1) > 0], {}


def codes_case(rng: np.random.Generator):
    b = Builder(TENSOR, TENSOR, scalar(0.05), scalar(0.02), scalar(0.07))
    added = b("add", b("mul", 0, 2), b("mul", 1, 3))
    codes = [torch.from_numpy(rng.integers(-128, 128, (2, 33, 4), np.int8)) for _ in range(2)]
    return b.build(b("quantize", b("max", added, b.const(0.0)), 4)), codes, {}


def transposed_case(rng: np.random.Generator):
    b = Builder(TENSOR, TENSOR)
    return b.build(b("sub", 0, 1)), [tensor(rng, 4, 6, 8).permute(2, 0, 1), tensor(rng, 8, 1, 6)], {}


def scattered_case(rng: np.random.Generator):
    """Six dimensions that nothing merges: more than a kernel has."""
    b = Builder(TENSOR, TENSOR)
    x = tensor(rng, 2, 3, 2, 3, 2, 3).permute(4, 1, 5, 0, 3, 2)
    return b.build(b("mul", 0, 1)), [x, tensor(rng, 3, 1, 3, 1)], {}


def summary_case(rng: np.random.Generator):
    b = Builder(TENSOR)
    low, high = b("row_min", 0), b("row_max", 0)
    spread = b("sub", high, low)
    return (
        b.build(spread, b("div", b("sub", 0, low), spread), b("row_sum", spread), rows=(True, False, True)),
        [tensor(rng, 3, 5, 11, dtype="float32")],
        {},
    )


def long_case(rng: np.random.Generator):
    b = Builder(TENSOR, TENSOR)
    return (
        b.build(spelled.softmax(b, b("add", 0, 1))),
        [tensor(rng, 2, 17001, dtype="float32"), tensor(rng, 17001, scale=0.1)],
        {},
    )


def turn_case(columns: int, *, is_normed: bool = False):
    """Queries behind a projection, turned by their places."""

    def make(rng: np.random.Generator):
        b = Builder(TENSOR, constant("cos"), constant("sin"), constant("gamma"), scalar(1e-6))
        x = spelled.rms_norm(b, 0, 3, 4) if is_normed else 0
        turned = b("add", b("mul", x, 1), b("mul", b("swap_pairs", x), 2))
        angles = rng.uniform(-3, 3, (5, columns)).astype(np.float32)
        tables = {"cos": np.cos(angles), "sin": np.sin(angles), "gamma": affine(rng, columns)["gamma"]}
        return b.build(turned), [tensor(rng, 2, 5, 3, columns).transpose(1, 2)], tables

    return make


CASES = (
    Case("turned pairs of 128", turn_case(128), ("float16",)),
    Case("turned pairs of 6", turn_case(6), ("float32",)),
    Case("turned pairs, normalized", turn_case(96, is_normed=True), ("float16",), 2, 1e-6),
    Case("turned pairs, normalized, of 192", turn_case(192, is_normed=True), ("bfloat16",), 2, 1e-6),
    Case("turned pairs of long rows", turn_case(17002), ("float16",)),
    Case("layer norm of 768", norm_case(768), ("float16",), 2),
    Case("layer norm of 41", norm_case(41), ("float32",), 2, 2e-6),
    Case("layer norm of 1", norm_case(1), ("float16",), 2),
    Case("rms norm, bfloat16", rms_case, ("bfloat16",), 2),
    Case("residual, layer norm, quantize", skip_case, ("float16", "int8"), 2),
    Case("softmax with a mask", softmax_case, ("float16",), 2),
    Case("gelu by erf", activation_case(spelled.gelu_erf), ("float16",), 1, 2e-6),
    Case("gelu by tanh", activation_case(spelled.gelu_tanh), ("float16",), 1, 1e-6),
    Case("silu", activation_case(spelled.silu), ("float16",)),
    Case("hard swish", activation_case(spelled.hard_swish), ("float16",)),
    Case("gate of channels", gate_case, ("float16",)),
    Case("constant of channels", channel_case, ("float16",)),
    Case("truth", compare_case, ("bool", "bool")),
    Case("sum of codes to codes", codes_case, ("int8",)),
    Case("transposed", transposed_case, ("float16",)),
    Case("six dimensions", scattered_case, ("float16",)),
    Case("one element per row", summary_case, ("float32", "float16", "float32"), 4),
    Case("rows too long for a block", long_case, ("float16",), 2),
)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_every_kernel_of_a_tactic_equals_the_reference(case: Case, rng: np.random.Generator) -> None:
    expression, inputs, constants = case.make(rng)
    wanted = workload(expression, inputs, case.outputs, constants)
    tactic = tactics_of(wanted)[0]
    expected = reference(wanted, inputs)
    for number, spec in enumerate(tactic.drafts[0].kernels):
        got, launched = run_tactic(tactic, inputs, lambda place, spec, least=number: place >= least)
        assert launched == [spec]
        for mine, theirs in zip(got, expected, strict=True):
            assert_near(mine, theirs, case.ulps, case.absolute)


def test_a_workload_has_few_kernels(rng: np.random.Generator) -> None:
    for case in CASES:
        expression, inputs, constants = case.make(rng)
        tactics = tactics_of(workload(expression, inputs, case.outputs, constants))
        assert len({spec for tactic in tactics for spec in tactic.drafts[0].kernels}) <= 7
        assert len({tactic.name for tactic in tactics}) == len(tactics)


def test_tiles_agree_bit_for_bit(rng: np.random.Generator) -> None:
    expression, inputs, constants = codes_case(rng)
    wanted = workload(expression, inputs, ("int8",), constants)
    results = [run_tactic(tactic, inputs)[0][0] for tactic in tactics_of(wanted)]
    assert len(results) >= 2
    assert all(torch.equal(result, results[0]) for result in results)


def test_the_outputs_keep_the_memory_format_of_the_input(rng: np.random.Generator) -> None:
    expression, inputs, _ = gate_case(rng)
    got, _ = run_tactic(tactics_of(workload(expression, inputs, ("float16",)))[0], inputs)
    assert got[0].stride() == inputs[0].stride()


@pytest.mark.parametrize("batch", [1, 3])
def test_another_batch_than_was_timed(batch: int, rng: np.random.Generator) -> None:
    """Timed with one image, where a gate is a vector; run with others by a kernel that reads it by image."""
    b = Builder(TENSOR, TENSOR)
    expression = b.build(b("mul", 0, 1))
    sizes = ((1, 32, 4, 4), (1, 32, 1, 1))
    timed = [channels_last(tensor(rng, *size)) for size in sizes]
    inputs = [channels_last(tensor(rng, batch, *size[1:])) for size in sizes]
    tactic = tactics_of(workload(expression, timed, ("float16",)))[0]
    got, launched = run_tactic(tactic, inputs)
    assert launched == [tactic.drafts[0].kernels[0 if batch == 1 else 1]]
    assert_near(got[0], reference(workload(expression, inputs, ("float16",)), inputs)[0], 1)


def test_another_memory_format_than_was_timed(rng: np.random.Generator) -> None:
    """Timed on contiguous images, run behind a convolution: by a kernel whose loads are wide there too."""
    b = Builder(TENSOR, TENSOR, constant("slope"))
    expression = b.build(b("mul", b("mul", 0, 1), 2))
    slope = {"slope": rng.uniform(0, 1, (32, 1, 1)).astype(np.float32)}
    timed = [tensor(rng, 2, 32, 4, 4), tensor(rng, 2, 32, 1, 1)]
    tactic = tactics_of(workload(expression, timed, ("float16",), slope))[0]
    inputs = [channels_last(x) for x in timed]
    got, launched = run_tactic(tactic, inputs)
    assert launched == [tactic.drafts[0].kernels[2]]
    assert {"C", "x0_s1", "x1_s0"} <= launched[0].aligned
    assert got[0].stride() == inputs[0].stride()
    assert_near(got[0], reference(workload(expression, inputs, ("float16",), slope), inputs)[0], 1)


def test_longer_rows_than_were_timed(rng: np.random.Generator) -> None:
    b = Builder(TENSOR)
    expression = b.build(spelled.softmax(b, 0))
    tactic = tactics_of(workload(expression, [tensor(rng, 4, 16)], ("float16",)))[0]
    inputs = [tensor(rng, 3, 2100)]
    got, launched = run_tactic(tactic, inputs)
    assert launched == [tactic.drafts[0].kernels[-1]]
    assert_near(got[0], reference(workload(expression, inputs, ("float16",)), inputs)[0], 2)


@pytest.mark.parametrize("kind", ["layer norm", "rms norm", "skip"])
def test_a_norm_of_the_largest_halves_is_what_float64_says(kind: str, rng: np.random.Generator) -> None:
    """Squares and sums of such numbers are far beyond float16; nothing of a norm is stored in it."""
    size = 64
    b = Builder(TENSOR, TENSOR, constant("gamma"), constant("beta"), scalar(1e-5))
    x = b("add", 0, 1) if kind == "skip" else 0
    norm = spelled.rms_norm(b, x, 2, 4) if kind == "rms norm" else spelled.layer_norm(b, x, 2, 3, 4)
    constants = affine(rng, size)
    signs = torch.from_numpy(rng.choice(np.array([-1.0, 1.0]), (2, 3, 5, size)))
    inputs = [(sign * 60000).half() for sign in signs]
    wanted = workload(b.build(norm), inputs, ("float16",), constants)
    values = sum(x.double() for x in inputs) if kind == "skip" else inputs[0].double()
    centred = values if kind == "rms norm" else values - values.mean(-1, keepdim=True)
    expected = centred / (centred.square().mean(-1, keepdim=True) + 1e-5).sqrt()
    expected = expected * torch.from_numpy(constants["gamma"])
    expected += 0 if kind == "rms norm" else torch.from_numpy(constants["beta"])
    for tactic in tactics_of(wanted)[:2]:
        (got,), _ = run_tactic(tactic, inputs)
        assert got.isfinite().all()
        assert_near(got, expected.half(), 2, 1e-4)


def test_memory_that_is_not_aligned(rng: np.random.Generator) -> None:
    b = Builder(TENSOR)
    expression = b.build(b("neg", 0))
    tactic = tactics_of(workload(expression, [tensor(rng, 64)], ("float16",)))[0]
    inputs = [tensor(rng, 65)[1:]]
    got, launched = run_tactic(tactic, inputs)
    assert launched == [tactic.drafts[0].kernels[-1]]
    assert torch.equal(got[0], -inputs[0])


def test_quantize_equals_the_reference_code_for_code(rng: np.random.Generator) -> None:
    """100000 numbers: ties of the rounding, neighbours of ties, beyond the range."""
    scale = 0.0371
    ties = (rng.integers(-140, 140, 25_000) + 0.5).astype(np.float32) * np.float32(scale)
    parts = [
        ties,
        np.nextafter(ties, np.float32(np.inf), dtype=np.float32),
        np.nextafter(ties, np.float32(-np.inf), dtype=np.float32),
        rng.uniform(-6, 6, 25_000).astype(np.float32),
    ]
    x = torch.from_numpy(np.concatenate(parts))
    b = Builder(TENSOR, scalar(scale))
    wanted = workload(b.build(b("quantize", 0, 1)), [x], ("int8",))
    got, _ = run_tactic(tactics_of(wanted)[-1], [x])
    ratio = x.numpy() / np.float32(scale)
    assert int((np.abs(ratio - np.trunc(ratio)) == 0.5).sum()) > 1000  # exact ties are among them
    assert np.array_equal(got[0].numpy(), np.clip(np.rint(ratio), -128, 127).astype(np.int8))
    assert torch.equal(got[0], reference(wanted, [x])[0])


def test_codes_saturate_and_nan_has_the_lowest() -> None:
    x = torch.tensor([float("inf"), float("-inf"), float("nan"), 1e30, -1e30, 127.5, -128.5, -0.5, 0.0])
    b = Builder(TENSOR, scalar(1.0))
    wanted = workload(b.build(b("quantize", 0, 1)), [x], ("int8",))
    got, _ = run_tactic(tactics_of(wanted)[0], [x])
    assert got[0].tolist() == [127, -128, -128, 127, -128, 127, -128, 0, 0]


def test_nan_goes_through_maxima_and_rows() -> None:
    nan = float("nan")
    x = torch.tensor([[1.0, nan, 3.0], [1.0, 2.0, 3.0]])
    b = Builder(TENSOR, scalar(2.0))
    expression = b.build(
        b("max", 0, 1), b("row_max", 0), b("row_min", 0), b("row_sum", 0), rows=(False, True, True, True)
    )
    wanted = workload(expression, [x], ("float32",) * 4)
    for number in range(3):
        got, _ = run_tactic(tactics_of(wanted)[0], [x], lambda place, spec, least=number: place >= least)
        for mine, theirs in zip(got, reference(wanted, [x]), strict=True):
            assert_near(mine, theirs, 1)


@pytest.mark.parametrize("shape", [(0, 8), (3, 0)])
def test_nothing_is_launched_for_no_elements(shape: tuple[int, int], rng: np.random.Generator) -> None:
    b = Builder(TENSOR)
    expression = b.build(spelled.softmax(b, 0))
    tactic = tactics_of(workload(expression, [tensor(rng, 3, 8)], ("float16",)))[0]
    got, launched = run_tactic(tactic, [torch.empty(shape).half()])
    assert launched == []
    assert got[0].shape == shape


def test_a_row_without_columns_has_a_sum(rng: np.random.Generator) -> None:
    b = Builder(TENSOR)
    expression = b.build(b("row_sum", 0), rows=(True,))
    tactic = tactics_of(workload(expression, [tensor(rng, 3, 8)], ("float32",)))[0]
    for number in range(3):
        got, _ = run_tactic(tactic, [torch.empty(2, 0).half()], lambda place, spec, n=number: place >= n)
        assert got[0].tolist() == [[0.0], [0.0]]


def test_a_host_value_of_one_element(rng: np.random.Generator) -> None:
    b = Builder(TENSOR, TENSOR)
    inputs = [tensor(rng, 3, 16), torch.tensor(5, dtype=torch.int64)]
    wanted = workload(b.build(b("mul", 0, 1)), inputs, ("float16",))
    got, _ = run_tactic(tactics_of(wanted)[0], inputs)
    assert_near(got[0], reference(wanted, inputs)[0], 1)


def test_shapes_that_do_not_broadcast_are_an_error_that_names_the_region(rng: np.random.Generator) -> None:
    b = Builder(TENSOR, TENSOR)
    timed = [tensor(rng, 3, 16), tensor(rng, 3, 16)]
    tactic = tactics_of(workload(b.build(b("mul", 0, 1)), timed, ("float16",)))[0]
    with pytest.raises(DataError, match="'region'") as raised:
        run_tactic(tactic, [tensor(rng, 3, 16), tensor(rng, 2, 16)])
    assert raised.value.got == "(3, 16) and (2, 16)"


def test_what_the_kernel_cannot_do_is_rejected_with_a_reason(rng: np.random.Generator) -> None:
    b = Builder(*[TENSOR] * 13)
    many = workload(b.build(b("add", 0, 12)), [tensor(rng, 4)] * 13, ("float16",))
    assert list_tactics(many, H200) == [Rejected("triton", "rows", "13 operands: at most 12")]
    b = Builder(TENSOR)
    complex_one = workload(b.build(b("neg", 0)), [torch.zeros(4, dtype=torch.complex64)], ("float16",))
    assert list_tactics(complex_one, H200) == [Rejected("triton", "rows", "operands of complex64")]


@pytest.mark.parametrize("is_ahead", [False, True])
@pytest.mark.parametrize("rows", [41, 64])
def test_programs_that_share_out_rows(rows: int, is_ahead: bool) -> None:
    """On a GPU of one multiprocessor a few programs walk all rows; the last one of them has fewer."""
    rng = np.random.default_rng(rows)
    b = Builder(TENSOR, constant("gamma"), constant("beta"), scalar(1e-5), scalar(0.05))
    y = spelled.layer_norm(b, 0, 1, 2, 3)
    x = tensor(rng, rows, 500)
    constants = {name: rng.standard_normal(500).astype(np.float32) for name in ("gamma", "beta")}
    wanted = workload(b.build(y, b("quantize", y, 4)), [x], ("float16", "int8"), constants)
    small = replace(H200, multiprocessors=1)
    shared = [tactic for tactic in list_tactics(wanted, small) if " p" in tactic.name]
    assert ["ahead" in tactic.name for tactic in shared] == [False, True]
    outputs, launched = run_tactic(shared[is_ahead], [x])
    assert dict(launched[0].constants)["AHEAD"] == is_ahead
    assert dict(launched[0].constants)["PROGRAMS"] < rows
    for got, want in zip(outputs, reference(wanted, [x]), strict=True):
        assert_near(got, want, 2, 1e-6)


@pytest.mark.parametrize(("columns", "part"), [(320, 64), (640, 128), (1280, 256)])
def test_rows_of_no_power_of_two_are_held_in_parts(columns: int, part: int) -> None:
    rng = np.random.default_rng(columns)
    b = Builder(TENSOR, constant("gamma"), constant("beta"), scalar(1e-5), scalar(0.05))
    y = spelled.layer_norm(b, 0, 1, 2, 3)
    x = tensor(rng, 81, columns)
    constants = affine(rng, columns)
    wanted = workload(b.build(y, b("quantize", y, 4)), [x], ("float16", "int8"), constants)
    held = [tactic for tactic in tactics_of(wanted) if f"x5x{part} w" in tactic.name]
    assert [tactic.drafts[0].kernels[0].num_warps for tactic in held] == [4, 8]
    for tactic in held:
        outputs, launched = run_tactic(tactic, [x])
        assert dict(launched[0].constants)["PARTS"] == 5
        for got, want in zip(outputs, reference(wanted, [x]), strict=True):
            assert_near(got, want, 2, 1e-6)


@pytest.mark.parametrize("columns", [192, 144])
def test_parts_that_are_not_full(columns: int) -> None:
    """Timed with 192 columns in three parts; fewer are found there too, NaN and largest ones included."""
    rng = np.random.default_rng(columns)
    b = Builder(TENSOR)
    largest = b("row_max", 0)
    expression = b.build(spelled.softmax(b, 0), largest)
    timed = workload(expression, [tensor(rng, 40, 192)], ("float32", "float32"))
    held = [tactic for tactic in tactics_of(timed) if "x3x64 w" in tactic.name]
    x = tensor(rng, 40, columns)
    x[3, 7] = float("nan")
    x[5, columns - 1] = 60000.0
    outputs, launched = run_tactic(held[0], [x])
    assert launched == [held[0].drafts[0].kernels[0]]
    for got, want in zip(outputs, reference(workload(expression, [x], ("float32",) * 2), [x]), strict=True):
        assert_near(got, want, 2, 1e-6)
