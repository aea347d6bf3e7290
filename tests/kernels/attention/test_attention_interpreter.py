# SPDX-License-Identifier: Apache-2.0
"""Our attention kernel in Triton's interpreter, against attention in float64."""

import math

import numpy as np
import pytest
import torch

from quantrt.errors import DataError
from quantrt.gpu import gpu_named
from quantrt.regions.expression import IDENTITY, Expression, Instruction, Operand
from quantrt.regions.region import Attention
from quantrt.runtime.cuda.device.launcher import InterpreterLauncher
from quantrt.runtime.cuda.reference.compute import compute
from quantrt.tactics.cuda.attention.attention import list_tactics
from quantrt.tactics.cuda.tactic import Rejected, Tactic, Workload
from tests.kernels.run_tactic import facts_of, run_tactic

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")

H200 = gpu_named("h200")
EDGES = (("n", 0), ("n", 1), ("n", 2))


def quantized(scale: float, *, keeps_floats: bool = False) -> Expression:
    """The result as codes, and before them as floats."""
    outputs = (0, 2) if keeps_floats else (2,)
    operands = (Operand("accumulator"), Operand("scalar", value=scale))
    return Expression(operands, (Instruction("quantize", (0, 1)),), outputs, (False,) * len(outputs))


def drawn(rng: np.random.Generator, *shape: int, dtype: torch.dtype = torch.float16) -> torch.Tensor:
    return torch.from_numpy(rng.standard_normal(shape).astype(np.float32)).to(dtype)


def from_projection(rng: np.random.Generator, B: int, S: int, H: int, D: int) -> list[torch.Tensor]:
    """Views of one product with all three, as [B, H, S, D] each."""
    merged = drawn(rng, B, S, 3, H, D)
    return [merged[:, :, part].transpose(1, 2) for part in range(3)]


def workload(
    inputs: list[torch.Tensor],
    *,
    outputs: tuple[str, ...] = ("float16",),
    epilogue: Expression = IDENTITY,
    constant: np.ndarray | None = None,
    **fields: object,
) -> Workload:
    is_transposed = bool(fields.pop("is_transposed", False))
    formula = Attention(
        EDGES,
        1 / math.sqrt(inputs[0].shape[-1]),
        is_transposed,
        has_mask=len(inputs) > 3,
        mask_constant="" if constant is None else "table",
        epilogue=epilogue,
        **fields,
    )
    constants = {} if constant is None else {"table": constant}
    return Workload("attention", formula, tuple(map(facts_of, inputs)), outputs, None, constants)


def own(case: Workload) -> list[Tactic]:
    """Without the kernel in Gluon, which no interpreter runs."""
    listed = list_tactics(case, H200, allows_codes=False)
    found = [x for x in listed if x.source == "triton" and isinstance(x, Tactic)]
    return [x for x in found if x.drafts[0].runner == "fused_attention"]


def expected(case: Workload, inputs: list[torch.Tensor]) -> list[torch.Tensor]:
    constants = {name: torch.from_numpy(array) for name, array in case.constants.items()}
    return compute(case.formula, inputs, case.outputs, None, constants)


def check(case: Workload, inputs: list[torch.Tensor], *, tactics: int = 2) -> list[torch.Tensor]:
    """The outputs of the last tactic that was tried; all are near the reference."""
    want = expected(case, inputs)
    found = own(case)
    assert found
    for tactic in (found[0], *found[-tactics + 1 :]):
        got, _ = run_tactic(tactic, inputs)
        for mine, theirs in zip(got, want, strict=True):
            assert mine.shape == theirs.shape
            assert mine.dtype == theirs.dtype
            if mine.dtype == torch.int8:
                distance = (mine.int() - theirs.int()).abs()
                assert int(distance.max()) <= 1, tactic.name
                assert int((distance > 0).sum()) <= max(1, mine.numel() // 50), tactic.name
            else:
                error = (mine.double() - theirs.double()).abs()
                bound = 2e-2 if mine.dtype == torch.bfloat16 else 2e-3
                assert float(error.max()) <= bound * (1 + float(theirs.double().abs().max())), tactic.name
    return got


@pytest.mark.parametrize(
    ("B", "H", "S", "T", "D"),
    [(1, 2, 1, 1, 16), (2, 3, 7, 7, 64), (1, 2, 41, 129, 32), (1, 1, 129, 70, 40), (1, 2, 20, 33, 80)],
)
def test_shapes(B: int, H: int, S: int, T: int, D: int, rng: np.random.Generator) -> None:
    inputs = [drawn(rng, B, H, S, D), drawn(rng, B, H, T, D), drawn(rng, B, H, T, D)]
    check(workload(inputs), inputs, tactics=3)


def test_bfloat16(rng: np.random.Generator) -> None:
    inputs = [drawn(rng, 1, 2, 33, 32, dtype=torch.bfloat16) for _ in range(3)]
    check(workload(inputs, outputs=("bfloat16",)), inputs)


def test_views_of_a_merged_projection_are_read_where_they_are(rng: np.random.Generator) -> None:
    inputs = from_projection(rng, 2, 19, 3, 64)
    (got,) = check(workload(inputs), inputs)
    assert got.transpose(1, 2).is_contiguous()  # the projection behind it reads [B, S, H * D] as it lies


def test_keys_as_they_are_exported(rng: np.random.Generator) -> None:
    q, k, v = from_projection(rng, 1, 19, 2, 32)
    inputs = [q, k.transpose(-1, -2), v]
    check(workload(inputs, is_transposed=True), inputs)


def test_heads_that_share_keys(rng: np.random.Generator) -> None:
    inputs = [drawn(rng, 2, 6, 17, 16), drawn(rng, 2, 2, 23, 16), drawn(rng, 2, 2, 23, 16)]
    check(workload(inputs), inputs)


@pytest.mark.parametrize(
    "shape", [(2, 1, 17, 23), (1, 3, 17, 23), (2, 1, 1, 23), (17, 23), (23,), (2, 3, 17, 1)]
)
def test_masks_that_are_added(shape: tuple[int, ...], rng: np.random.Generator) -> None:
    inputs = [drawn(rng, 2, 3, 17, 32), drawn(rng, 2, 3, 23, 32), drawn(rng, 2, 3, 23, 32)]
    check(workload([*inputs, drawn(rng, *shape) * 3]), [*inputs, drawn(rng, *shape) * 3])


@pytest.mark.parametrize("kind", ["kept", "dropped"])
@pytest.mark.parametrize("value", [-math.inf, -3.4028234663852886e38, -5.0])
def test_masks_of_truths(kind: str, value: float, rng: np.random.Generator) -> None:
    inputs = [drawn(rng, 2, 2, 9, 16), drawn(rng, 2, 2, 40, 16), drawn(rng, 2, 2, 40, 16)]
    mask = torch.from_numpy(rng.random((2, 1, 9, 40)) < 0.5)
    mask[0, 0, 3], mask[1, 0, 4] = True, False  # queries that see everything or nothing
    check(workload([*inputs, mask], mask_kind=kind, mask_value=value), [*inputs, mask])


def test_what_is_finite_in_a_mask_stays_finite(rng: np.random.Generator) -> None:
    inputs = [drawn(rng, 1, 2, 9, 16), drawn(rng, 1, 2, 20, 16), drawn(rng, 1, 2, 20, 16)]
    mask = torch.zeros(1, 1, 9, 20)
    mask[..., 2, :] = torch.finfo(torch.float32).min  # every key alike: their mean
    mask[..., 5, :] = -math.inf  # none: zeros
    mask[..., 6, :11] = -math.inf
    (got,) = check(workload([*inputs, mask]), [*inputs, mask])
    assert not got[:, :, 5].any()
    assert got.isfinite().all()


@pytest.mark.parametrize("sizes", [(33, 33), (9, 70), (70, 9)])
def test_causal(sizes: tuple[int, int], rng: np.random.Generator) -> None:
    S, T = sizes
    inputs = [drawn(rng, 1, 2, S, 16), drawn(rng, 1, 2, T, 16), drawn(rng, 1, 2, T, 16)]
    check(workload(inputs, is_causal=True), inputs, tactics=4)


@pytest.mark.parametrize("shape", [(17, 23), (1, 1, 1, 23), (1,)])
def test_constant_masks(shape: tuple[int, ...], rng: np.random.Generator) -> None:
    inputs = [drawn(rng, 2, 3, 17, 32), drawn(rng, 2, 3, 23, 32), drawn(rng, 2, 3, 23, 32)]
    table = rng.standard_normal(shape).astype(np.float32)
    check(workload(inputs, constant=table), inputs)


def test_codes_and_both_forms(rng: np.random.Generator) -> None:
    inputs = from_projection(rng, 2, 19, 3, 64)
    check(workload(inputs, outputs=("int8",), epilogue=quantized(0.01)), inputs)
    both = workload(inputs, outputs=("float16", "int8"), epilogue=quantized(0.01, keeps_floats=True))
    check(both, inputs)


def test_a_library_with_codes_behind_it_gives_the_same(rng: np.random.Generator) -> None:
    inputs = from_projection(rng, 2, 19, 3, 64)
    case = workload(inputs, outputs=("int8",), epilogue=quantized(0.01))
    (math_,) = [x for x in list_tactics(case, H200, allows_codes=False) if x.name == "math"]
    assert isinstance(math_, Tactic)
    (got,), _ = run_tactic(math_, inputs)
    (want,) = expected(case, inputs)
    assert int((got.int() - want.int()).abs().max()) <= 1


def test_other_lengths_run_with_the_same_kernel(rng: np.random.Generator) -> None:
    inputs = from_projection(rng, 2, 64, 2, 32)
    tactic = own(workload(inputs))[0]
    for B, S in ((1, 1), (3, 100)):
        others = from_projection(rng, B, S, 2, 32)
        (got,), _ = run_tactic(tactic, others)
        (want,) = expected(workload(others), others)
        assert float((got.double() - want.double()).abs().max()) < 4e-3


@pytest.fixture
def launched(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, object]]:
    """Arguments of every launch, by name."""
    found: list[dict[str, object]] = []
    launch = InterpreterLauncher.__call__

    def noting(self: InterpreterLauncher, grid: tuple[int, int, int], arguments: list[object]) -> None:
        found.append(dict(zip((name for name, _ in self.spec.signature), arguments, strict=True)))
        launch(self, grid, arguments)

    monkeypatch.setattr(InterpreterLauncher, "__call__", noting)
    return found


def test_dense_rows_that_begin_anywhere_are_copied(
    rng: np.random.Generator, launched: list[dict[str, torch.Tensor]]
) -> None:
    inputs = [drawn(rng, 9 * 2 * 16 + 1)[1:].view(1, 9, 2, 16).transpose(1, 2) for _ in range(3)]
    assert all(x.data_ptr() % 16 for x in inputs)
    check(workload(inputs), inputs)
    assert all(at[name].data_ptr() % 16 == 0 for at in launched for name in ("q_ptr", "k_ptr", "v_ptr"))


@pytest.mark.parametrize("rows", [1, 9])
def test_a_mask_has_room_for_all_that_is_read(
    rows: int, rng: np.random.Generator, launched: list[dict[str, torch.Tensor]]
) -> None:
    longer = [drawn(rng, 1, 2, n, 16) for n in (9, 48, 48)] + [drawn(rng, 1, 1, rows, 48)]
    shorter = [drawn(rng, 1, 2, n, 16) for n in (9, 41, 41)] + [drawn(rng, 1, 1, rows, 41)]
    tactic = own(workload(longer))[0]
    (got,), _ = run_tactic(tactic, shorter)
    (want,) = expected(workload(shorter), shorter)
    assert float((got.double() - want.double()).abs().max()) < 4e-3
    assert launched[0]["mask_ptr"].shape[3] == 48  # 16 elements are read together


def test_a_given_mask_is_as_wide_as_the_scores(rng: np.random.Generator) -> None:
    inputs = [drawn(rng, 1, 2, n, 16) for n in (9, 48, 48)] + [drawn(rng, 1, 1, 1, 48)]
    tactic = own(workload(inputs))[0]
    with pytest.raises(DataError, match="cannot attend"):
        run_tactic(tactic, [inputs[0], *(x[:, :, :32] for x in inputs[1:3]), inputs[3]])


def test_what_it_cannot_compute_has_a_reason(rng: np.random.Generator) -> None:
    def why(inputs: list[torch.Tensor], outputs: tuple[str, ...] = ("float16",), gpu: str = "h200") -> str:
        rows = list_tactics(workload(inputs, outputs=outputs), gpu_named(gpu), allows_codes=False)
        (row,) = [row for row in rows if row.source == "triton" and row.name == "attention"]
        assert isinstance(row, Rejected)
        return row.reason

    halves = [drawn(rng, 1, 2, 9, 16) for _ in range(3)]
    assert "80 is the least" in why(halves, gpu="t4")
    assert "float32" in why([x.float() for x in halves], ("float32",))
    assert "heads of 16 in q and of 32 in v" in why([*halves[:2], drawn(rng, 1, 2, 9, 32)])
    assert "at most 256" in why([drawn(rng, 1, 2, 9, 264) for _ in range(3)])
