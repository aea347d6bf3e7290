# SPDX-License-Identifier: Apache-2.0
"""Attention through torch agrees with the reference, on every layout that a merged projection hands over."""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pytest
import torch
from torch.nn.attention import SDPBackend

from quantrt.errors import DataError, DeviceError
from quantrt.plan.program import Step
from quantrt.regions.region import Attention
from quantrt.runtime.cuda.reference.compute import compute
from quantrt.runtime.cuda.runner import Assets
from quantrt.runtime.cuda.runners import attention as runner_module
from quantrt.runtime.cuda.runners.attention import open_runner

HALF_EPSILON = 2.0**-11
FLOAT_EPSILON = 2.0**-24

# In units of the element type's rounding times the largest |v|: the scores, numbers up to about 8, the
# probabilities and the result are each rounded.
ALLOWED_ROUNDINGS = 8


@dataclass(frozen=True)
class Case:
    """One shape: q [B, H, S, D], k and v [B, G, T, D]."""

    B: int = 2
    H: int = 3
    S: int = 7
    T: int = 7
    D: int = 64
    G: int | None = None
    is_transposed: bool = False

    @property
    def id(self) -> str:
        return f"B{self.B} H{self.H} S{self.S} T{self.T} D{self.D} G{self.G}{' k^T' * self.is_transposed}"


CASES = [
    Case(),
    Case(S=1, T=197),
    Case(S=197, T=197, is_transposed=True),
    Case(S=7, T=1),
    Case(S=1, T=1, D=1),
    Case(S=129, T=41, D=41),
    Case(S=41, T=129, D=41, is_transposed=True),
    Case(H=6, G=2, S=33, T=57),
    Case(H=4, G=1, S=5, T=9, is_transposed=True),
    Case(B=1, H=1, S=300, T=300, D=128),
]


def tensors(case: Case, dtype: torch.dtype, rng: np.random.Generator) -> list[torch.Tensor]:
    """q, k and v with a normal distribution."""
    groups = case.G or case.H
    shapes = [(case.B, case.H, case.S, case.D), *[(case.B, groups, case.T, case.D)] * 2]
    q, k, v = (torch.from_numpy(rng.standard_normal(shape).astype(np.float32)) for shape in shapes)
    return [q.to(dtype), (k.transpose(2, 3).contiguous() if case.is_transposed else k).to(dtype), v.to(dtype)]


def formula_of(case: Case, *, has_mask: bool = False, **fields: object) -> Attention:
    edges = (("n", 0), ("n", 1), ("n", 2))
    return Attention(edges, 1 / math.sqrt(case.D), case.is_transposed, has_mask=has_mask, **fields)


def opened(formula: Attention, dtype: str, backends: tuple[str, ...] = ("math",), device: str = "cpu"):
    options = {
        "backends": list(backends),
        "dtype": dtype,
        "scale": formula.scale,
        "is_transposed": formula.is_transposed,
        "is_causal": formula.is_causal,
        "mask_kind": formula.mask_kind,
        "mask_value": formula.mask_value,
    }
    step = Step("attention", "layer0/attention", ("q", "k", "v", "mask"), ("y",), options)
    return open_runner(step, Assets(torch.device(device), {}, {}))


def allocate(*_args: object, **_named: object) -> torch.Tensor:
    raise AssertionError("attention makes its own result")


def check(
    formula: Attention, inputs: list[torch.Tensor], dtype: str, times_larger: float = 1.0
) -> torch.Tensor:
    """Run it on the CPU and hold it against the reference; gives the result.

    Args:
        times_larger: scores than usual; what they are rounded by is what the result differs by.
    """
    [got] = opened(formula, dtype).run(inputs, allocate)
    [want] = compute(formula, inputs, [dtype])
    assert got.shape == want.shape
    assert got.dtype == want.dtype
    epsilon = FLOAT_EPSILON if dtype == "float32" else HALF_EPSILON
    bound = times_larger * ALLOWED_ROUNDINGS * epsilon * float(inputs[2].abs().max())
    assert float((got.double() - want.double()).abs().max()) <= bound
    return got


@pytest.mark.parametrize("dtype", ["float16", "float32"])
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
def test_shapes(case: Case, dtype: str, rng: np.random.Generator):
    check(formula_of(case), tensors(case, getattr(torch, dtype), rng), dtype)


@pytest.mark.parametrize(
    "shape",
    [(2, 3, 7, 33), (2, 1, 1, 33), (1, 1, 7, 33), (7, 33), (33,), (3, 7, 1), ()],
    ids=str,
)
@pytest.mark.parametrize("mask_type", [torch.float16, torch.float32])
def test_masks_broadcast(shape: tuple[int, ...], mask_type: torch.dtype, rng: np.random.Generator):
    case = Case(T=33)
    mask = torch.from_numpy(np.asarray(rng.standard_normal(shape), np.float32)).to(torch.float16)
    check(
        formula_of(case, has_mask=True), [*tensors(case, torch.float16, rng), mask.to(mask_type)], "float16"
    )


@pytest.mark.parametrize("dtype", ["float16", "float32"])
@pytest.mark.parametrize("case", [*CASES[:5], CASES[7], CASES[9]], ids=lambda case: case.id)
def test_causal(case: Case, dtype: str, rng: np.random.Generator):
    q, k, v = tensors(case, getattr(torch, dtype), rng)
    got = check(formula_of(case, is_causal=True), [q, k, v], dtype)
    groups = case.H // (case.G or case.H)
    first = v[:, :, :1].repeat_interleave(groups, 1)
    assert torch.equal(got[:, :, :1], first), "the first query sees the first key alone"


@pytest.mark.parametrize("dtype", ["float16", "float32"])
@pytest.mark.parametrize("shape", [(7, 33), (2, 1, 1, 33), (2, 3, 7, 33)], ids=str)
def test_causal_and_a_mask(shape: tuple[int, ...], dtype: str, rng: np.random.Generator):
    mask = torch.from_numpy(rng.standard_normal(shape).astype(np.float32))
    inputs = [*tensors(Case(T=33), getattr(torch, dtype), rng), mask.to(getattr(torch, dtype))]
    got = check(formula_of(Case(T=33), has_mask=True, is_causal=True), inputs, dtype)
    assert torch.equal(got[:, :, 0], inputs[2][:, :, 0])


@pytest.mark.parametrize("number", [-math.inf, torch.finfo(torch.float32).min, -1e9], ids=str)
@pytest.mark.parametrize("kind", ["kept", "dropped"])
@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_masks_of_truths(kind: str, number: float, dtype: str, rng: np.random.Generator):
    keeps = torch.from_numpy(rng.random((2, 1, 7, 33)) < 0.5)
    mask = keeps if kind == "kept" else ~keeps
    formula = formula_of(Case(T=33), has_mask=True, mask_kind=kind, mask_value=number)
    check(formula, [*tensors(Case(T=33), getattr(torch, dtype), rng), mask], dtype)


@pytest.mark.parametrize("number", [torch.finfo(torch.float32).min, -1e9, -1e4], ids=str)
@pytest.mark.parametrize("kind", ["kept", "dropped"])
@pytest.mark.parametrize("dtype", ["float16", "float32"])
@pytest.mark.parametrize("case", [Case(T=33), Case(H=6, G=2, S=9, T=5)], ids=lambda case: case.id)
@pytest.mark.parametrize("is_causal", [False, True], ids=["", "causal"])
def test_a_query_that_is_masked_entirely_sees_all_keys_alike(
    kind: str, number: float, dtype: str, case: Case, is_causal: bool, rng: np.random.Generator
):
    """All its scores are the same number then, whichever: a padded row of a batch."""
    keeps = torch.from_numpy(rng.random((case.B, 1, case.S, case.T)) < 0.5)
    keeps[:, :, 2] = False
    mask = keeps if kind == "kept" else ~keeps
    formula = formula_of(case, has_mask=True, mask_kind=kind, mask_value=number, is_causal=is_causal)
    q, k, v = tensors(case, getattr(torch, dtype), rng)
    got = check(formula, [4 * q, k, v, mask], dtype, times_larger=4.0)
    seen = v[:, :, :3] if is_causal else v
    want = seen.double().mean(2).repeat_interleave(case.H // (case.G or case.H), 1)
    assert float((got[:, :, 2].double() - want).abs().max()) < 0.01


@pytest.mark.parametrize("lowest", [-math.inf, torch.finfo(torch.float32).min, -10000.0])
@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_masked_keys_have_no_weight(lowest: float, dtype: str, rng: np.random.Generator):
    case = Case(S=9, T=9)
    q, k, v = tensors(case, getattr(torch, dtype), rng)
    mask = torch.triu(torch.full((9, 9), lowest), 1)
    got = check(formula_of(case, has_mask=True), [q, k, v, mask], dtype)
    assert torch.equal(got[:, :, 0], v[:, :, 0]), "the first query sees the first key alone"


def test_a_query_without_keys_gives_zero(rng: np.random.Generator):
    case = Case()
    mask = torch.zeros(7, 7)
    mask[3] = -math.inf
    [got] = opened(formula_of(case, has_mask=True), "float32").run(
        [*tensors(case, torch.float32, rng), mask], allocate
    )
    assert torch.all(got[:, :, 3] == 0)
    assert torch.isfinite(got).all()


@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_views_of_a_merged_projection(dtype: str, rng: np.random.Generator):
    """[B, S, 3 * H * D] split in three: every row 3 * H * D elements from the next."""
    B, S, H, D = 2, 41, 3, 16
    merged = torch.from_numpy(rng.standard_normal((B, S, 3 * H * D)).astype(np.float32))
    merged = merged.to(getattr(torch, dtype))
    q, k, v = (part.reshape(B, S, H, D).transpose(1, 2) for part in merged.split(H * D, 2))
    assert q.stride() == (S * 3 * H * D, D, 3 * H * D, 1)
    exported = Case(B=B, H=H, S=S, T=S, D=D, is_transposed=True)
    check(formula_of(exported), [q, k.transpose(2, 3), v], dtype)


def test_extreme_scores_do_not_overflow(rng: np.random.Generator):
    """Scores of 64 * 60 * 60 do not exist in float16."""
    case = Case(S=4, T=5)
    q, k, v = tensors(case, torch.float16, rng)
    formula = Attention((("n", 0),) * 3, 1.0, is_transposed=False, has_mask=False)
    q, k = torch.full_like(q, 60.0), torch.full_like(k, 60.0)
    [got] = opened(formula, "float16").run([q, k, v], allocate)
    assert torch.isfinite(got).all()


def test_nan_reaches_the_queries_that_meet_it(rng: np.random.Generator):
    case = Case()
    q, k, v = tensors(case, torch.float32, rng)
    q[0, 1, 2, 3] = math.nan
    [got] = opened(formula_of(case), "float32").run([q, k, v], allocate)
    assert torch.isnan(got[0, 1, 2]).all()
    assert int(torch.isnan(got).sum()) == case.D


@pytest.mark.parametrize("case", [Case(S=0), Case(T=0), Case(B=0)], ids=lambda case: case.id)
def test_empty_tensors(case: Case, rng: np.random.Generator):
    inputs = tensors(case, torch.float16, rng)
    [got] = opened(formula_of(case), "float16").run(inputs, allocate)
    assert got.shape == (case.B, case.H, case.S, case.D)
    assert not got.any(), "a query without a key gives zeros"


def test_one_batch_of_keys_serves_all_queries(rng: np.random.Generator):
    q, k, v = tensors(Case(B=3), torch.float32, rng)
    check(formula_of(Case(B=3)), [q, k[:1], v[:1]], "float32")


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(lambda q, k, v: (q[..., :5], k, v), id="head size"),
        pytest.param(lambda q, k, v: (q, k[:, :2], v[:, :2]), id="heads that do not divide"),
        pytest.param(lambda q, k, v: (q, k, v[:, :, :3]), id="length of v"),
        pytest.param(lambda q, k, v: (q[0], k, v), id="rank"),
        pytest.param(lambda q, k, v: (q, k, v, torch.zeros(2, 3, 7, 6)), id="mask"),
        pytest.param(lambda q, k, v: (q, k.repeat(2, 1, 1, 1)[:3], v), id="batch"),
    ],
)
def test_shapes_that_do_not_fit_name_the_region(change: Callable, rng: np.random.Generator):
    inputs = change(*tensors(Case(), torch.float32, rng))
    with pytest.raises(DataError, match="layer0/attention"):
        opened(formula_of(Case()), "float32").run(inputs, allocate)


class Torch:
    """Stands for torch on a GPU: notes which backend is switched on; some cannot be used."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, usable: set[str]) -> None:
        self.switched: list[SDPBackend] = []
        for name in ("cudnn", "flash", "efficient"):
            answer = name in usable
            monkeypatch.setattr(
                runner_module.fused, f"can_use_{name}_attention", lambda _parameters, answer=answer: answer
            )
        real = runner_module.sdpa_kernel
        monkeypatch.setattr(runner_module, "sdpa_kernel", self._note(real))

    def _note(self, real: Callable) -> Callable:
        def switch(backend: SDPBackend):
            self.switched.append(backend)
            return real([backend, SDPBackend.MATH])  # the CPU has no backend of a GPU

        return switch


@pytest.mark.parametrize(
    ("usable", "want"),
    [
        ({"cudnn", "flash", "efficient"}, SDPBackend.CUDNN_ATTENTION),
        ({"flash", "efficient"}, SDPBackend.FLASH_ATTENTION),
        ({"efficient"}, SDPBackend.EFFICIENT_ATTENTION),
        (set(), SDPBackend.MATH),
    ],
)
def test_on_a_gpu_the_first_usable_backend_runs(
    usable: set[str],
    want: SDPBackend,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    rng: np.random.Generator,
):
    fake = Torch(monkeypatch, usable)
    formula = formula_of(Case())
    runner = opened(formula, "float32", ("cudnn", "flash", "efficient", "math"), device="cuda")
    inputs = tensors(Case(), torch.float32, rng)
    for _ in range(2):
        [got] = runner.run(inputs, allocate)
    assert fake.switched == [want, want]
    assert torch.allclose(got, compute(formula, inputs, ["float32"])[0], rtol=0, atol=1e-5)
    said = [record.getMessage() for record in caplog.records]
    assert len(said) == ("cudnn" not in usable), "a replacement is said once"


def test_rows_that_a_gpu_could_not_load_are_copied(rng: np.random.Generator):
    case = Case(D=16)
    q, k, v = tensors(case, torch.float16, rng)
    packed = runner_module._packed
    assert packed(q) is q
    by_row = q.transpose(1, 2).contiguous().transpose(1, 2)
    assert packed(by_row) is by_row
    uneven = torch.zeros(2, 3, 7, 17, dtype=torch.float16)[..., :16]
    shifted = torch.zeros(2 * 3 * 7 * 16 + 1, dtype=torch.float16)[1:].view(2, 3, 7, 16)
    shifted_rows = torch.zeros(2 * 3 * 7 * 16 + 1, dtype=torch.float16)[1:].view(2, 7, 3, 16).transpose(1, 2)
    across = k.transpose(2, 3).contiguous().transpose(2, 3)
    for tensor in (uneven, shifted, shifted_rows, across):
        copy = packed(tensor)
        assert torch.equal(copy, tensor)
        assert copy.stride() == (7 * 3 * 16, 16, 3 * 16, 1)
        assert copy.storage_offset() == 0
    odd = torch.zeros(2, 3, 7, 41, dtype=torch.float16)
    assert packed(odd) is odd, "torch pads heads that are no multiple of eight itself"


def test_running_out_of_memory_names_the_region(monkeypatch: pytest.MonkeyPatch, rng: np.random.Generator):
    def fail(*_args: object, **_named: object) -> torch.Tensor:
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(torch.nn.functional, "scaled_dot_product_attention", fail)
    with pytest.raises(DeviceError, match="layer0/attention"):
        opened(formula_of(Case()), "float32").run(tensors(Case(), torch.float32, rng), allocate)
