# SPDX-License-Identifier: Apache-2.0
"""Products with epilogues through tactics and runners, against the reference, in Triton's interpreter."""

from collections.abc import Sequence

import numpy as np
import pytest
import torch

from quantrt.errors import DataError
from quantrt.gpu import gpu_named
from quantrt.regions.expression import Expression, Operand
from quantrt.regions.region import Gemm
from quantrt.runtime.cuda.reference.compute import compute
from quantrt.tactics.cuda.products.gemm import list_tactics
from quantrt.tactics.cuda.tactic import Tactic, Workload
from tests.kernels.memory_bound import expressions as spelled
from tests.kernels.memory_bound.expressions import TENSOR, Builder, constant, scalar
from tests.kernels.run_tactic import facts_of, run_tactic

H200 = gpu_named("H200")
GLUON = ("few_rows", "gemm_hopper")
"""Runners of kernels in Gluon, which no interpreter runs."""
SUM = Operand("accumulator")

# numpy warns where IEEE 754 goes on with infinities and NaN; a GPU does not.
pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")

SHAPES = [(1, 7, 41), (129, 64, 32), (17, 129, 7), (41, 48, 130)]
"""M, N, K."""


def codes(rng: np.random.Generator, *shape: int, low: int = -128) -> torch.Tensor:
    return torch.from_numpy(rng.integers(low, 128, shape, dtype=np.int8))


def floats(rng: np.random.Generator, *shape: int, dtype: torch.dtype = torch.float16) -> torch.Tensor:
    return torch.from_numpy(rng.standard_normal(shape, dtype=np.float32)).to(dtype)


class Case:
    """One product: its workload, its inputs, and what the reference makes of them."""

    def __init__(
        self,
        epilogue: Expression,
        inputs: Sequence[torch.Tensor],
        weight: torch.Tensor,
        outputs: Sequence[str],
        *,
        is_transposed: bool = True,
        **constants: torch.Tensor,
    ) -> None:
        formula = Gemm(("n", 0), ("n", 1), "w", is_transposed, epilogue)
        self.inputs = list(inputs)
        self.weight = weight
        self.constants = constants
        self.workload = Workload(
            "region",
            formula,
            tuple(facts_of(tensor) for tensor in inputs),
            tuple(outputs),
            weight.numpy(),
            {name: tensor.numpy() for name, tensor in constants.items()},
        )

    def expected(self, inputs: Sequence[torch.Tensor] | None = None) -> list[torch.Tensor]:
        w = self.workload
        return compute(w.formula, inputs or self.inputs, w.outputs, self._weight(), self.constants)

    def _weight(self) -> torch.Tensor:
        """As it is multiplied: rounded to the type of x."""
        return self.weight.to(self.inputs[0].dtype)

    def tactics(self, source: str = "triton") -> list[Tactic]:
        found = [item for item in list_tactics(self.workload, H200) if item.source == source]
        assert found
        assert all(isinstance(item, Tactic) for item in found), found
        return [item for item in found if item.drafts[0].runner not in GLUON]

    def run(
        self, tactic: Tactic | None = None, inputs: Sequence[torch.Tensor] | None = None
    ) -> list[torch.Tensor]:
        outputs, _ = run_tactic(tactic or self.tactics()[0], inputs or self.inputs)
        return outputs

    def assert_equal(self, tactic: Tactic | None = None) -> None:
        for got, want in zip(self.run(tactic), self.expected(), strict=True):
            assert got.shape == want.shape
            assert got.dtype == want.dtype
            assert torch.equal(got, want)

    def assert_near(self, tactic: Tactic | None = None, *, ulps: float) -> None:
        """Within that many distances of neighbours, at the size of the largest output."""
        for got, want in zip(self.run(tactic), self.expected(), strict=True):
            assert got.shape == want.shape
            assert got.dtype == want.dtype
            step = {torch.float16: 2.0**-10, torch.float32: 2.0**-23}[want.dtype]
            error = (got.double() - want.double()).abs().max()
            assert error <= ulps * step * want.double().abs().max()


def accumulator() -> Expression:
    return Builder(SUM).build(0)


def requantized(*, residual_scale: float | None = None) -> Expression:
    """Sums of codes -> floats -> + bias [-> + residual] -> codes."""
    extra = () if residual_scale is None else (TENSOR, scalar(residual_scale))
    b = Builder(SUM, constant("scale"), constant("bias"), scalar(0.05), *extra)
    y = b("add", b("mul", 0, 1), 2)
    if residual_scale is not None:
        y = b("add", y, b("mul", 4, 5))
    return b.build(b("quantize", y, 3))


def scale_and_bias(rng: np.random.Generator, N: int, K: int) -> dict[str, torch.Tensor]:
    """Scales that spread the results over the codes and beyond."""
    scale = torch.from_numpy(rng.uniform(0.5, 1.5, N).astype(np.float32)) * (4e-4 / K**0.5)
    return {"scale": scale, "bias": floats(rng, N, dtype=torch.float32)}


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_sums_of_codes_are_exact(rng, shape):
    M, N, K = shape
    Case(accumulator(), [codes(rng, M, K)], codes(rng, N, K, low=-127), ["float32"]).assert_equal()


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_codes_in_codes_out(rng, shape):
    M, N, K = shape
    case = Case(requantized(), [codes(rng, M, K)], codes(rng, N, K), ["int8"], **scale_and_bias(rng, N, K))
    case.assert_equal()
    assert case.expected()[0].unique().numel() > min(M * N, 30) / 2


@pytest.mark.parametrize("shape", [(40_000, 250, 96), (4096, 384, 1536)], ids=str)
@pytest.mark.parametrize("has_residual", [False, True])
def test_every_tile_gives_the_same_codes(rng, has_residual, shape):
    """The tiles for many rows, on a few; large ones take their columns in parts, in more with a residual.

    384 columns are whole parts, but no whole tiles of 256: the last part must store nothing.
    """
    M, N, K = shape
    residual_scale = 0.02 if has_residual else None
    shapes = [(M, K), (M, N)][: 1 + has_residual]
    case = Case(
        requantized(residual_scale=residual_scale),
        [codes(rng, *sizes) for sizes in shapes],
        codes(rng, N, K),
        ["int8"],
        **scale_and_bias(rng, N, K),
    )
    few = [tensor[:20] for tensor in case.inputs]
    (want,) = case.expected(few)
    tactics = case.tactics()
    assert len(tactics) > 4
    parts = {dict(x.drafts[0].kernels[0].constants)["PARTS"] for x in tactics if x.drafts[0].runner == "gemm"}
    assert max(parts) == (4 if has_residual else 2)
    for tactic in tactics:
        assert torch.equal(case.run(tactic, few)[0], want), tactic.name


def test_sums_at_the_ends_of_their_range(rng):
    x = torch.full((3, 300), -128, dtype=torch.int8)
    weight = torch.full((5, 300), -127, dtype=torch.int8)
    weight[1:3] = 127
    Case(accumulator(), [x], weight, ["float32"]).assert_equal()


def test_saturation_and_zeros(rng):
    x = torch.tensor([[127] * 32, [-128] * 32, [0] * 32], dtype=torch.int8)
    weight = torch.tensor([[127] * 32, [-127] * 32, [0] * 32], dtype=torch.int8)
    constants = {"scale": torch.ones(3), "bias": torch.zeros(3)}
    case = Case(requantized(), [x], weight, ["int8"], **constants)
    case.assert_equal()
    assert case.run()[0].tolist() == [[127, -128, 0], [-128, 127, 0], [0, 0, 0]]


def test_halves_round_to_even():
    """One product per row: x * 1 * 0.5 / 1 lies between two codes for every odd x."""
    x = torch.arange(-128, 128, dtype=torch.int8)[:, None].repeat(1, 32)
    x[:, 1:] = 0
    b = Builder(SUM, constant("scale"), scalar(1.0))
    case = Case(
        b.build(b("quantize", b("mul", 0, 1), 2)),
        [x],
        torch.ones(8, 32, dtype=torch.int8),
        ["int8"],
        scale=torch.full((8,), 0.5),
    )
    case.assert_equal()
    assert case.run()[0][:, 0].tolist() == [round(code / 2) for code in range(-128, 128)]


@pytest.mark.parametrize("dtype", [torch.int8, torch.float16], ids=str)
def test_residual(rng, dtype):
    M, N, K = 41, 129, 48
    residual = codes(rng, M, N) if dtype == torch.int8 else floats(rng, M, N)
    case = Case(
        requantized(residual_scale=0.02),
        [codes(rng, M, K), residual],
        codes(rng, N, K),
        ["int8"],
        **scale_and_bias(rng, N, K),
    )
    case.assert_equal()


def test_two_outputs_of_one_value(rng):
    M, N, K = 19, 40, 64
    b = Builder(SUM, constant("scale"), constant("bias"), scalar(0.05))
    y = b("add", b("mul", 0, 1), 2)
    epilogue = b.build(y, b("quantize", y, 3))
    constants = scale_and_bias(rng, N, K)
    Case(epilogue, [codes(rng, M, K)], codes(rng, N, K), ["float16", "int8"], **constants).assert_equal()


@pytest.mark.parametrize("spelling", [spelled.gelu_erf, spelled.gelu_tanh, spelled.silu])
def test_activations(rng, spelling):
    M, N, K = 9, 33, 64
    b = Builder(SUM, constant("bias"))
    epilogue = b.build(spelling(b, b("add", 0, 1)))
    bias = floats(rng, N, dtype=torch.float32)
    Case(epilogue, [floats(rng, M, K)], floats(rng, N, K), ["float16"], bias=bias).assert_near(ulps=1)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_floats(rng, shape, dtype):
    M, N, K = shape
    kind = getattr(torch, dtype)
    b = Builder(SUM, constant("bias"), TENSOR)
    epilogue = b.build(b("add", b("add", 0, 1), 2))
    case = Case(
        epilogue,
        [floats(rng, M, K, dtype=kind), floats(rng, M, N, dtype=kind)],
        floats(rng, N, K, dtype=torch.float32),
        [dtype],
        bias=floats(rng, N, dtype=torch.float32),
    )
    case.assert_near(ulps=1 if dtype == "float16" else 8)


def test_nan_and_infinity_stay_in_their_rows(rng):
    x = floats(rng, 4, 32)
    x[1, 3], x[2, 5] = float("nan"), float("inf")
    weight = floats(rng, 8, 32, dtype=torch.float32).abs() + 0.1
    (got,) = Case(accumulator(), [x], weight, ["float16"]).run()
    assert got[1].isnan().all()
    assert got[2].isinf().all()
    assert got[[0, 3]].isfinite().all()
    b = Builder(SUM, scalar(0.5))
    case = Case(b.build(b("quantize", 0, 1)), [x], weight, ["int8"])
    got, want = case.run()[0], case.expected()[0]
    assert got[1].tolist() == [-128] * 8
    assert got[2].tolist() == [127] * 8
    assert (got.int() - want.int()).abs().max() <= 1


def test_weight_the_other_way_around(rng):
    weight = codes(rng, 48, 20)
    case = Case(accumulator(), [codes(rng, 5, 48)], weight, ["float32"], is_transposed=False)
    case.assert_equal()


def test_slices_of_a_merged_product_are_read_in_place(rng):
    """A third of [2, 5, 3 * 64], as q, k or v of one product are, through a kernel for its row stride."""
    merged = codes(rng, 2, 5, 192)
    case = Case(accumulator(), [merged[..., 64:128]], codes(rng, 24, 64), ["float32"])
    case.assert_equal()
    assert case.run()[0].shape == (2, 5, 24)


def test_other_strides_are_copied(rng):
    """Compiled for contiguous rows, then given transposed, misaligned, expanded and padded ones."""
    case = Case(accumulator(), [codes(rng, 2, 6, 32)], codes(rng, 16, 32), ["float32"])
    (tactic,) = case.tactics()[:1]
    others = [
        codes(rng, 6, 2, 32).transpose(0, 1),
        codes(rng, 2, 32, 6).transpose(1, 2),
        codes(rng, 2 * 6 * 32 + 1)[1:].view(2, 6, 32),
        codes(rng, 1, 6, 32).expand(2, 6, 32),
        codes(rng, 2, 6, 37)[..., :32],
        codes(rng, 2, 1, 32).expand(2, 6, 32),
    ]
    for x in others:
        (got,), (want,) = case.run(tactic, [x]), case.expected([x])
        assert torch.equal(got, want)


@pytest.mark.parametrize("shape", [(1, 32), (200, 32), (32,), (2, 3, 4, 32)], ids=str)
def test_any_number_of_rows_through_one_kernel(rng, shape):
    case = Case(accumulator(), [codes(rng, 3, 32)], codes(rng, 16, 32), ["float32"])
    x = codes(rng, *shape)
    (got,), (want,) = case.run(inputs=[x]), case.expected([x])
    assert torch.equal(got, want)


@pytest.mark.parametrize("source", ["triton", "cublaslt"])
def test_no_rows(rng, source):
    case = Case(
        requantized(), [codes(rng, 18, 32)], codes(rng, 16, 32), ["int8"], **scale_and_bias(rng, 16, 32)
    )
    (got,) = case.run(case.tactics(source)[0], [codes(rng, 0, 32)])
    assert got.shape == (0, 16)


def test_shapes_that_do_not_fit(rng):
    case = Case(
        requantized(residual_scale=0.02),
        [codes(rng, 4, 32), codes(rng, 4, 16)],
        codes(rng, 16, 32),
        ["int8"],
        **scale_and_bias(rng, 16, 32),
    )
    with pytest.raises(DataError, match=r"region 'region'"):
        case.run(inputs=[codes(rng, 4, 48), codes(rng, 4, 16)])
    with pytest.raises(DataError, match=r"region 'region'"):
        case.run(inputs=[codes(rng, 5, 32), codes(rng, 4, 16)])
    with pytest.raises(DataError, match=r"region 'region'"):
        case.run(inputs=[floats(rng, 4, 32), codes(rng, 4, 16)])


@pytest.mark.parametrize("rows", [17, 40])
def test_library_product_of_codes(rng, rows):
    case = Case(
        requantized(residual_scale=0.02),
        [codes(rng, rows, 64), codes(rng, rows, 24)],
        codes(rng, 24, 64),
        ["int8"],
        **scale_and_bias(rng, 24, 64),
    )
    (tactic,) = case.tactics("cublaslt")
    case.assert_equal(tactic)
    fewer = [codes(rng, 3, 64), codes(rng, 3, 24)]
    assert torch.equal(case.run(tactic, fewer)[0], case.expected(fewer)[0])


@pytest.mark.parametrize("K", [8, 300])
def test_codes_multiplied_as_floats_are_off_by_one_at_most(rng, K):
    """Too few rows for the library's product of codes; sums are rounded to float16."""
    constants = scale_and_bias(rng, 24, K)
    case = Case(requantized(), [codes(rng, 7, K)], codes(rng, 24, K), ["int8"], **constants)
    (tactic,) = [item for item in list_tactics(case.workload, H200) if item.name == "matmul dequantized"]
    assert isinstance(tactic, Tactic)
    (got,), (want,) = case.run(tactic), case.expected()
    distance = (got.int() - want.int()).abs()
    assert distance.max() <= 1
    assert (distance != 0).sum() <= 0.05 * want.numel()


def test_dequantized_sums_stay_in_range():
    """The largest sums that there are, 300 * 128 * 127, are beyond float16 without a scale."""
    x = torch.full((2, 300), -128, dtype=torch.int8)
    weight = torch.full((8, 300), -127, dtype=torch.int8)
    case = Case(accumulator(), [x], weight, ["float32"])
    (tactic,) = [item for item in list_tactics(case.workload, H200) if item.name == "matmul dequantized"]
    (got,), (want,) = case.run(tactic), case.expected()
    assert got.isfinite().all()
    assert ((got - want).abs() <= 2.0**-11 * want).all()


def test_truth_is_stored(rng):
    b = Builder(SUM, scalar(100.0))
    case = Case(b.build(b("gt", 0, 1)), [codes(rng, 5, 32)], codes(rng, 16, 32), ["bool"])
    case.assert_equal()


def library_epilogues() -> dict[str, Expression]:
    bias = Builder(SUM, constant("bias"))
    relu = Builder(SUM, constant("bias"))
    tanh = Builder(SUM, constant("bias"))
    erf = Builder(SUM, constant("bias"))
    return {
        "matmul": accumulator(),
        "matmul + bias": bias.build(bias("add", 0, 1)),
        "matmul + bias + relu": relu.build(relu("max", relu("add", 0, 1), relu.const(0.0))),
        "matmul + bias + gelu_tanh": tanh.build(spelled.gelu_tanh(tanh, tanh("add", 0, 1))),
        "matmul, rows": erf.build(spelled.gelu_erf(erf, erf("add", 0, 1))),
    }


@pytest.mark.parametrize("name", library_epilogues())
def test_library_product_of_floats(rng, name):
    epilogue = library_epilogues()[name]
    names = [operand.name for operand in epilogue.operands if operand.kind == "constant"]
    case = Case(
        epilogue,
        [floats(rng, 2, 9, 64)],
        floats(rng, 64, 24, dtype=torch.float32) * 0.2,
        ["float16"],
        is_transposed=False,
        **{name: floats(rng, 24, dtype=torch.float32) for name in names},
    )
    (tactic,) = case.tactics("cublaslt")
    assert tactic.name == name
    case.assert_near(tactic, ulps=2)


@pytest.mark.parametrize("is_transposed", [True, False])
def test_library_product_of_float32_reads_the_weight_as_it_lies(rng, is_transposed):
    weight = floats(rng, *((24, 64) if is_transposed else (64, 24)), dtype=torch.float32) * 0.2
    x = floats(rng, 2, 9, 64, dtype=torch.float32)
    case = Case(accumulator(), [x], weight, ["float32"], is_transposed=is_transposed)
    (tactic,) = case.tactics("cublaslt")
    (draft,) = tactic.drafts
    assert draft.runner == ("matmul" if is_transposed else "matmul_columns_last")
    assert np.shares_memory(draft.constants[0].make(), case.workload.weight)
    case.assert_near(tactic, ulps=2)
