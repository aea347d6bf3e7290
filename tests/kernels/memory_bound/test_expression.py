# SPDX-License-Identifier: Apache-2.0
"""Every instruction in a kernel, in Triton's interpreter, against the reference and against float64."""

import numpy as np
import pytest
import torch

from quantrt.errors import InternalError
from quantrt.kernels.expression.spec import OPS, flops_of, program_of
from quantrt.regions.expression import ARITY, Expression, Instruction
from quantrt.runtime.cuda.reference.evaluate import evaluate
from tests.kernels.memory_bound.expressions import TENSOR, Builder, scalar
from tests.kernels.memory_bound.test_rows import tactics_of, workload
from tests.kernels.run_tactic import run_tactic

# numpy warns where IEEE 754 goes on with infinities and NaN; a GPU does not.
pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")

INF, NAN = float("inf"), float("nan")
SPECIAL = (
    0.0,
    -0.0,
    1.0,
    -1.0,
    0.5,
    -0.5,
    1.5,
    2.5,
    -2.5,
    3.0,
    1e-7,
    -1e-7,
    1e-30,
    20.0,
    -20.0,
    INF,
    -INF,
    NAN,
)

ULPS = {"log": 2, "tanh": 3, "sin": 2, "cos": 2, "pow": 2}
"""How far from the reference, which is itself not correctly rounded; every other operation is exact. torch's
square root on a CPU is not correctly rounded either."""
POWERS_OF_E = ("exp", "sigmoid", "softplus")
"""Through exp2(x * log2(e)): the rounding of the exponent adds up to half an ulp for every unit of |x|."""
ERF_ERROR = 2.4e-7
"""Of the approximation, 5.8e-8, and of three roundings of numbers up to 1."""
SQUARE_ROOTS = ("sqrt", "rsqrt")
ELEMENTWISE = [op for op, count in ARITY.items() if count and not op.startswith("row_")]


def numbers(rng: np.random.Generator, rows: int) -> torch.Tensor:
    special = torch.tensor(SPECIAL, dtype=torch.float32)
    drawn = torch.from_numpy((rng.standard_normal((rows, 46)) * 4).astype(np.float32))
    return torch.cat([special.expand(rows, -1), drawn], 1)


def result(expression: Expression, inputs: list[torch.Tensor]) -> torch.Tensor:
    got, _ = run_tactic(tactics_of(workload(expression, inputs, ("float32",)))[0], inputs)
    return got[0]


def ulps_apart(got: torch.Tensor, want: torch.Tensor) -> float:
    """The largest distance in neighbours of float32, 0 for equal numbers and for two NaN.

    Below 2**-126 neighbours count as farther apart: machines may flush such numbers to 0.
    """
    same = (got == want) | (got.isnan() & want.isnan())
    one = torch.from_numpy(np.spacing(want.abs().clamp(2.0**-103, 2.0**126).float().numpy()))
    distance = ((got.double() - want.double()).abs() / one)[~same]
    return float(distance.nan_to_num(nan=INF).max()) if distance.numel() else 0.0


@pytest.mark.parametrize("op", ELEMENTWISE)
def test_an_operation_equals_the_reference(op: str, rng: np.random.Generator) -> None:
    columns = numbers(rng, 1)[0]
    inputs = [columns, columns.flip(0).view(-1, 1), columns[3:6].view(3, 1, 1)][: ARITY[op]]
    if op == "quantize_at":  # zero points are codes
        inputs[2] = torch.round(torch.nan_to_num(inputs[2]).clamp(-128, 127))
    if op in ("quantize", "quantize_at", "quantize_fp8"):
        scales = inputs[1].abs()
        inputs[1] = torch.where((scales > 0) & scales.isfinite(), scales, 1.0)
    b = Builder(*[TENSOR] * ARITY[op])
    expression = b.build(b(op, *range(ARITY[op])))
    want = evaluate(expression, None, inputs, {})[0]
    if op in SQUARE_ROOTS:
        root = np.sqrt(columns.numpy())
        want = torch.from_numpy(root if op == "sqrt" else np.float32(1) / root)
    got = result(expression, inputs)
    if op == "erf":
        assert_erf(got, want)
    elif op in POWERS_OF_E:
        assert_power_of_e(got, want, inputs[0])
    else:
        assert ulps_apart(got, want) <= ULPS.get(op, 0)


@pytest.mark.parametrize("zero_point", [-118, -117, 0, 7, 126])
def test_halves_are_rounded_to_even_before_a_zero_point_is_added(zero_point: int) -> None:
    x = torch.arange(-600, 600, dtype=torch.float32).reshape(1, -1) / 2
    b = Builder(TENSOR, *map(scalar, (1.0, float(zero_point))))
    expression = b.build(b("quantize_at", 0, 1, 2))
    (got,), _ = run_tactic(tactics_of(workload(expression, [x], ("int8",)))[0], [x])
    want = np.clip(np.rint(x.numpy()) + zero_point, -128, 127).astype(np.int8)
    assert np.array_equal(got.numpy(), want)


def assert_erf(got: torch.Tensor, want: torch.Tensor) -> None:
    assert torch.equal(got.isnan(), want.isnan())
    assert float((got.double() - want.double()).abs().nan_to_num(nan=0.0).max()) <= ERF_ERROR


def assert_power_of_e(got: torch.Tensor, want: torch.Tensor, x: torch.Tensor) -> None:
    """Each element within 4 ulp and its share for the size of its argument; below 2**-126 it may be 0."""
    for number, result_, exact in zip(x.flatten(), got.flatten(), want.flatten(), strict=True):
        size = float(number.abs().nan_to_num(nan=0.0, posinf=0.0))
        assert ulps_apart(result_[None], exact[None]) <= 4 + size or exact < 2.0**-126 > result_


@pytest.mark.parametrize("exponent", [2.0, 3.0, 0.5, -0.5, -1.0, 4.0, 1.7, 0.0])
def test_a_power_with_a_known_exponent(exponent: float, rng: np.random.Generator) -> None:
    x = numbers(rng, 1)
    for from_scalar in (False, True):
        b = Builder(TENSOR, scalar(exponent))
        expression = b.build(b("pow", 0, 1 if from_scalar else b.const(exponent)))
        want = torch.pow(x.double(), float(np.float32(exponent))).float()
        if exponent == 0.5:  # C's pow(-0.0, 0.5) and pow(-inf, 0.5) are no square roots
            want = x.double().sqrt().float()
        if exponent == -0.5:
            want = (1.0 / x.double().sqrt()).float()
        assert ulps_apart(result(expression, [x]), want) <= 2


@pytest.mark.parametrize("op", ["tanh", "softplus", "sigmoid", "erf"])
def test_small_and_large_arguments_keep_their_digits(op: str) -> None:
    size = torch.logspace(-12, 2, 801, dtype=torch.float64).float()
    x = torch.cat([size, -size])
    b = Builder(TENSOR)
    exact = {
        "tanh": torch.tanh(x.double()),
        "softplus": torch.nn.functional.softplus(x.double(), threshold=1000),
        "sigmoid": torch.sigmoid(x.double()),
        "erf": torch.erf(x.double()),
    }[op]
    got = result(b.build(b(op, 0)), [x])
    if op == "erf":
        assert_erf(got, exact)
    elif op in POWERS_OF_E:
        assert_power_of_e(got, exact.float(), x)
    else:
        assert ulps_apart(got, exact.float()) <= 4


def test_an_empty_program_stores_an_operand() -> None:
    x = torch.tensor([1.0, NAN, -0.0])
    assert ulps_apart(result(Builder(TENSOR).build(0), [x]), x) == 0


def test_an_expression_of_constants_fills_its_shape() -> None:
    b = Builder(TENSOR)
    assert result(b.build(b.const(2.5)), [torch.zeros(3, 5)]).tolist() == [[2.5] * 5] * 3


def test_the_program_of_an_expression() -> None:
    b = Builder(TENSOR, scalar(2.0))
    mean = b("row_mean", b("pow", 0, 1))
    total = b("row_sum", b("mul", mean, b.const(0.5)))
    rows = program_of(b.build(total, rows=(True,)), ("float16",))
    assert [OPS[row[0]] for row in rows] == ["square", "row_mean", "const", "mul", "row_sum"]
    assert rows[1][1:] == (2, 0, 0, 0.0)
    assert rows[2][1:] == (0, 0, 0, 0.5)
    assert rows[4][1:] == (5, 0, 1, 0.0)  # the second reduction
    assert (
        flops_of(b.build(total), ("float16",)) == 2
    )  # the square and the mean; the rest is one number for each row


SQRT_HALF = 0.7071067811865476


def erf_gelu(b: Builder, form: str) -> int:
    """The register of x / 2 * (1 + erf(x / sqrt(2))), its factors in some order; x is register 0."""
    gate = b("add", b.const(1.0), b("erf", b("mul", 0, b.const(SQRT_HALF))))
    half = b.const(0.5)
    forms = {
        "x gate half": lambda: b("mul", b("mul", 0, gate), half),
        "half gate x": lambda: b("mul", b("mul", half, gate), 0),
        "half x gate": lambda: b("mul", gate, b("mul", 0, half)),
    }
    return forms[form]()


@pytest.mark.parametrize("form", ["x gate half", "half gate x", "half x gate"])
def test_a_gelu_is_one_step_in_every_order(form: str) -> None:
    b = Builder(TENSOR)
    expression = b.build(erf_gelu(b, form))
    assert [OPS[row[0]] for row in program_of(expression, ("float16",))].count("gelu") == 1
    assert not any(OPS[row[0]] == "gelu" for row in program_of(expression, ("float32",)))
    x = torch.linspace(-12, 12, 4001)
    got, _ = run_tactic(tactics_of(workload(expression, [x], ("float16",)))[0], [x])
    want = 0.5 * x.double() * (1 + torch.erf(x.double() * SQRT_HALF))
    assert float((got[0].double() - want).abs().sub(want.abs() * 2.0**-11).max()) < 3.5e-6


@pytest.mark.parametrize(
    ("gate", "scale", "half"), [(2.0, SQRT_HALF, 0.5), (1.0, 0.7, 0.5), (1.0, SQRT_HALF, 1.0)]
)
def test_what_is_nearly_a_gelu_is_none(gate: float, scale: float, half: float) -> None:
    b = Builder(TENSOR)
    opened = b("add", b("erf", b("mul", 0, b.const(scale))), b.const(gate))
    rows = program_of(b.build(b("mul", b("mul", 0, opened), b.const(half))), ("float16",))
    assert not any(OPS[row[0]] == "gelu" for row in rows)


def test_a_product_of_two_is_no_gelu_of_one() -> None:
    b = Builder(TENSOR, TENSOR)
    gate = b("add", b("erf", b("mul", 0, b.const(SQRT_HALF))), b.const(1.0))
    rows = program_of(b.build(b("mul", b("mul", 1, gate), b.const(0.5))), ("float16",))
    assert not any(OPS[row[0]] == "gelu" for row in rows)


def test_codes_behind_an_approximation_are_at_most_one_apart(rng: np.random.Generator) -> None:
    special = torch.tensor([INF, -INF, NAN, 1e30, -1e30, 0.0])
    x = torch.cat([special, torch.from_numpy((rng.standard_normal(20000) * 3).astype(np.float32))])
    b = Builder(TENSOR, scalar(0.0123))
    expression = b.build(b("quantize", b("tanh", 0), 1))
    assert [OPS[row[0]] for row in program_of(expression, ("int8",))] == ["tanh", "quantize_near"]
    got, _ = run_tactic(tactics_of(workload(expression, [x], ("int8",)))[0], [x])
    want = torch.round(torch.tanh(x.double()) / float(np.float32(0.0123))).clamp(-128, 127)
    distance = (got[0].double() - want.nan_to_num(nan=-128.0)).abs()
    assert float(distance.max()) <= 1
    assert int((distance > 0).sum()) <= 10


def test_a_program_that_reads_ahead_is_an_error() -> None:
    expression = Expression((TENSOR,), (Instruction("neg", (1,)),), (1,), (False,))
    with pytest.raises(InternalError, match="not computed yet"):
        program_of(expression, ("float16",))
