# SPDX-License-Identifier: Apache-2.0
"""Attention over codes in Triton's interpreter, the step that makes them before it, against float64."""

import math
from collections.abc import Callable

import numpy as np
import pytest
import torch

from quantrt.kernels.attention_coded.spec import CodedAttention
from quantrt.tactics.cuda.attention import fused
from quantrt.tactics.cuda.attention.coded import tactic_of
from quantrt.tactics.cuda.tactic import Constant, Tactic, Workload
from quantrt.tactics.cuda.timing.check import check as check_outputs
from tests.kernels.attention.test_attention_interpreter import (
    drawn,
    expected,
    from_projection,
    quantized,
    workload,
)
from tests.kernels.run_tactic import run_tactic

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")

BOUNDS = {
    ("int8", "fp8"): 0.045,
    ("int8", "floats"): 0.016,
    ("floats", "fp8"): 0.042,
    ("fp8", "fp8"): 0.065,
    ("floats", "floats"): 0.002,
}
"""Errors over the size of the result. Values and weights in E4M3 are off by 2.6 % of their size on average
each, q and k in int8 by 1.2 % of a product's size together, in E4M3 by 3.7 %; few keys average out little."""

Tensors = list[torch.Tensor]


def tactic_for(
    case: Workload, form: tuple[str, str], *, tile: tuple[int, int] = (16, 32), mask: Constant | None = None
) -> Tactic:
    problem = fused.problem_of(case, case.formula)
    assert not isinstance(problem, str)
    return tactic_of(case.formula, problem, CodedAttention(*form, *tile, 4, 2), mask)


def relative(got: torch.Tensor, want: torch.Tensor) -> float:
    return float((got.double() - want.double()).norm() / want.double().norm().clamp(min=1e-30))


def check(case: Workload, inputs: Tensors, form: tuple[str, str], **options: object) -> Tensors:
    """The outputs, which are as near the reference as codes allow and as tuning asks for."""
    tactic, want = tactic_for(case, form, **options), expected(case, inputs)
    got, launched = run_tactic(tactic, inputs)
    assert [spec.family for spec in launched][-1] == "attention_coded"
    assert check_outputs(case, tactic, got, want) is None
    for mine, theirs in zip(got, want, strict=True):
        if theirs.is_floating_point():
            assert relative(mine, theirs) <= BOUNDS[form]
    return got


@pytest.mark.parametrize("form", BOUNDS)
@pytest.mark.parametrize(
    ("B", "H", "S", "T", "D"),
    [(1, 2, 1, 1, 16), (2, 3, 33, 77, 64), (1, 2, 1, 77, 40), (1, 1, 41, 129, 80), (1, 1, 17, 65, 160)],
)
def test_shapes(
    B: int, H: int, S: int, T: int, D: int, form: tuple[str, str], rng: np.random.Generator
) -> None:
    inputs = [drawn(rng, B, H, S, D), drawn(rng, B, H, T, D), drawn(rng, B, H, T, D)]
    check(workload(inputs), inputs, form)


@pytest.mark.parametrize("form", [("int8", "fp8"), ("int8", "floats")])
def test_heads_of_256(form: tuple[str, str], rng: np.random.Generator) -> None:
    inputs = [drawn(rng, 1, 1, 20, 256), drawn(rng, 1, 1, 77, 256), drawn(rng, 1, 1, 77, 256)]
    check(workload(inputs), inputs, form)


def test_sums_of_int8_are_floats_without_a_conversion(rng: np.random.Generator) -> None:
    """Also those of the largest codes in the widest heads, 127**2 * 256 < 2**22."""
    q = torch.ones(1, 1, 16, 256).half()
    k = torch.cat([torch.ones(20, 256), -torch.ones(20, 256)]).view(1, 1, 40, 256).half()
    inputs = [q, k, drawn(rng, 1, 1, 40, 256)]
    (got,) = check(workload(inputs), inputs, ("int8", "floats"))
    assert relative(got[0, 0, 0], inputs[2][0, 0, :20].double().mean(0)) < 1e-3


def test_bfloat16(rng: np.random.Generator) -> None:
    inputs = [drawn(rng, 1, 2, 33, 32, dtype=torch.bfloat16) for _ in range(3)]
    check(workload(inputs, outputs=("bfloat16",)), inputs, ("int8", "fp8"))
    check(workload(inputs, outputs=("bfloat16",)), inputs, ("int8", "floats"))


def test_views_of_a_merged_projection_are_read_where_they_are(rng: np.random.Generator) -> None:
    inputs = from_projection(rng, 2, 45, 3, 64)
    (got,) = check(workload(inputs), inputs, ("int8", "floats"))
    assert got.transpose(1, 2).is_contiguous()
    q, k, v = inputs
    check(workload([q, k.mT, v], is_transposed=True), [q, k.mT, v], ("int8", "fp8"))


def test_heads_that_share_keys(rng: np.random.Generator) -> None:
    inputs = [drawn(rng, 2, 6, 17, 32), drawn(rng, 2, 2, 43, 32), drawn(rng, 2, 2, 43, 32)]
    for form in (("int8", "fp8"), ("int8", "floats")):
        check(workload(inputs), inputs, form)


@pytest.mark.parametrize("form", [("int8", "fp8"), ("int8", "floats"), ("floats", "fp8")])
@pytest.mark.parametrize("shape", [(2, 1, 17, 43), (1, 3, 17, 43), (2, 1, 1, 43), (43,), (2, 3, 17, 1)])
def test_masks_that_are_added(
    shape: tuple[int, ...], form: tuple[str, str], rng: np.random.Generator
) -> None:
    inputs = [drawn(rng, 2, 3, 17, 32), drawn(rng, 2, 3, 43, 32), drawn(rng, 2, 3, 43, 32)]
    inputs.append(drawn(rng, *shape) * 2)
    check(workload(inputs), inputs, form)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_what_is_finite_in_a_mask_stays_finite(dtype: torch.dtype, rng: np.random.Generator) -> None:
    inputs = [drawn(rng, 1, 2, 9, 32), drawn(rng, 1, 2, 40, 32), drawn(rng, 1, 2, 40, 32)]
    mask = torch.zeros(1, 1, 9, 40, dtype=dtype)
    mask[..., 2, :] = torch.finfo(dtype).min  # every key alike: their mean
    mask[..., 5, :] = -math.inf  # none: zeros
    mask[..., 6, :33] = -math.inf  # those of the first block are hidden
    case = workload([*inputs, mask])
    tactic = tactic_for(case, ("int8", "fp8"))
    (got,), _ = run_tactic(tactic, [*inputs, mask])
    (want,) = expected(case, [*inputs, mask])
    assert not got[:, :, 5].any()
    assert got.isfinite().all()
    for row in (0, 6):
        assert relative(got[:, :, row], want[:, :, row]) < 0.06
    if dtype != torch.float16:  # scores are not lost in it there
        assert relative(got[:, :, 2], inputs[2].double().mean(2)) < 0.06


@pytest.mark.parametrize("kind", ["kept", "dropped"])
@pytest.mark.parametrize("value", [-math.inf, -3.4028234663852886e38, -5.0])
def test_masks_of_truths(kind: str, value: float, rng: np.random.Generator) -> None:
    inputs = [drawn(rng, 2, 2, 9, 32), drawn(rng, 2, 2, 40, 32), drawn(rng, 2, 2, 40, 32)]
    mask = torch.from_numpy(rng.random((2, 1, 9, 40)) < 0.5)
    mask[0, 0, 3], mask[1, 0, 4] = True, False  # queries that see everything or nothing
    case = workload([*inputs, mask], mask_kind=kind, mask_value=value)
    for form in (("int8", "fp8"), ("int8", "floats")):
        (got,) = check(case, [*inputs, mask], form)
        hidden = got[0, :, 3] if kind == "dropped" else got[1, :, 4]
        assert got.isfinite().all()
        assert hidden.any() == (value > -math.inf)


@pytest.mark.parametrize("sizes", [(70, 70), (9, 70), (70, 40)])
@pytest.mark.parametrize("has_mask", [False, True])
def test_causal(sizes: tuple[int, int], has_mask: bool, rng: np.random.Generator) -> None:
    S, T = sizes
    inputs = [drawn(rng, 1, 2, S, 32), drawn(rng, 1, 2, T, 32), drawn(rng, 1, 2, T, 32)]
    inputs += [drawn(rng, S, T)] if has_mask else []
    for form in (("int8", "fp8"), ("int8", "floats")):
        check(workload(inputs, is_causal=True), inputs, form)
    check(workload(inputs, is_causal=True), inputs, ("int8", "fp8"), tile=(64, 32))


@pytest.mark.parametrize("shape", [(17, 43), (1, 1, 1, 43), (1,)])
def test_constant_masks(shape: tuple[int, ...], rng: np.random.Generator) -> None:
    inputs = [drawn(rng, 2, 3, 17, 32), drawn(rng, 2, 3, 43, 32), drawn(rng, 2, 3, 43, 32)]
    table = rng.standard_normal(shape).astype(np.float32)
    room = [(0, 0)] * (len(shape) - 1) + [(0, -shape[-1] % 16 if shape[-1] > 1 else 0)]
    stored = Constant("table", lambda: np.pad(table.astype(np.float16), room))
    check(workload(inputs, constant=table), inputs, ("int8", "fp8"), mask=stored)


def test_codes_and_both_forms(rng: np.random.Generator) -> None:
    inputs = from_projection(rng, 2, 45, 3, 64)
    check(workload(inputs, outputs=("int8",), epilogue=quantized(0.01)), inputs, ("int8", "fp8"))
    both = workload(inputs, outputs=("float16", "int8"), epilogue=quantized(0.01, keeps_floats=True))
    floats, codes = check(both, inputs, ("int8", "floats"))
    distance = codes.int() - torch.round(floats.float() / 0.01).clamp(-128, 127).int()
    assert int(distance.abs().max()) <= 1


def test_other_lengths_run_with_the_same_kernel(rng: np.random.Generator) -> None:
    inputs = from_projection(rng, 2, 64, 2, 32)
    tactic = tactic_for(workload(inputs), ("int8", "fp8"))
    for B, S in ((1, 1), (3, 100)):
        others = from_projection(rng, B, S, 2, 32)
        (got,), _ = run_tactic(tactic, others)
        (want,) = expected(workload(others), others)
        assert relative(got, want) < BOUNDS["int8", "fp8"]
    q, k, v = from_projection(rng, 1, 9, 2, 32)
    (got,), _ = run_tactic(tactic, [q, k[:, :, :0], v[:, :, :0]])
    assert not got.any()


def as_they_came(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> None:
    pass


def with_channels_far_from_0(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> None:
    k += torch.linspace(-20, 20, k.shape[3]).half()


def with_a_few_large_values(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> None:
    v[:, :, ::50] *= 20


@pytest.mark.parametrize("change", [as_they_came, with_channels_far_from_0, with_a_few_large_values])
@pytest.mark.parametrize("form", [("int8", "fp8"), ("int8", "floats")])
def test_outliers(change: Callable[..., None], form: tuple[str, str], rng: np.random.Generator) -> None:
    inputs = [drawn(rng, 1, 2, n, 64) for n in (64, 600, 600)]
    change(*inputs)
    check(workload(inputs), inputs, form, tile=(64, 64))


@pytest.mark.parametrize("form", [("int8", "fp8"), ("int8", "floats")])
@pytest.mark.parametrize("wrong", [math.nan, math.inf])
@pytest.mark.parametrize("part", [0, 1, 2])
def test_what_is_no_number_is_none_behind_it(
    part: int, wrong: float, form: tuple[str, str], rng: np.random.Generator
) -> None:
    inputs = [drawn(rng, 2, 2, n, 32) for n in (9, 70, 70)]
    inputs[part][1, 1, 3, 5] = wrong
    case = workload(inputs)
    (got,), _ = run_tactic(tactic_for(case, form), inputs)
    (want,) = expected(case, inputs)
    is_none = ~want.isfinite()
    assert is_none.any()
    assert not got[is_none].isfinite().any()
    assert got[0].isfinite().all() and got[1, 0].isfinite().all()


def test_nothing_in_a_query_and_equal_keys_give_the_mean(rng: np.random.Generator) -> None:
    """Both scales are the least there are."""
    inputs = [torch.zeros(1, 1, 9, 32).half(), torch.ones(1, 1, 45, 32).half(), drawn(rng, 1, 1, 45, 32)]
    for form in (("int8", "floats"), ("fp8", "fp8")):
        (got,), _ = run_tactic(tactic_for(workload(inputs), form), inputs)
        mean = inputs[2].double().mean(2, keepdim=True)
        assert relative(got, mean.expand(-1, -1, 9, -1)) < (0.06 if form[1] == "fp8" else 1e-3)
