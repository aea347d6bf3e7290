# SPDX-License-Identifier: Apache-2.0
"""Kernels that stop behind the last row that counts, in Triton's interpreter."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
import torch

from quantrt.gpu import gpu_named
from quantrt.kernels.kernel import KernelSpec
from quantrt.kernels.live_rows import with_live_rows
from quantrt.regions.expression import Operand
from quantrt.regions.region import Gemm, Rows
from quantrt.runtime.cuda.reference.compute import compute
from quantrt.tactics.cuda.memory_bound.rows import list_tactics as list_rows
from quantrt.tactics.cuda.padding.live_rows import rows_that_count, stopping
from quantrt.tactics.cuda.products.gemm import list_tactics as list_gemm
from quantrt.tactics.cuda.tactic import LIVE, Tactic, Workload
from quantrt.tactics.cuda.timing.check import POISON, check, poison
from quantrt.tactics.cuda.timing.open_tactic import OpenTactic
from quantrt.tactics.cuda.tuning.estimate import work_of
from tests.kernels.memory_bound import expressions as spelled
from tests.kernels.memory_bound.expressions import TENSOR, Builder, constant, scalar
from tests.kernels.run_tactic import facts_of

A100 = gpu_named("A100")
CPU = torch.device("cpu")
B, S, K, N = 3, 7, 40, 24


def product(rng: np.random.Generator) -> tuple[Workload, list[torch.Tensor]]:
    """Codes in, + a residual, codes out."""
    b = Builder(Operand("accumulator"), constant("scale"), TENSOR, scalar(0.05))
    epilogue = b.build(b("quantize", b("add", b("mul", 0, 1), 2), 3))
    x = torch.from_numpy(rng.integers(-128, 128, (B, S, K), dtype=np.int8))
    residual = torch.from_numpy(rng.standard_normal((B, S, N), dtype=np.float32)).half()
    weight = rng.integers(-127, 128, (N, K), dtype=np.int8)
    constants = {"scale": rng.uniform(1e-4, 2e-4, N).astype(np.float32)}
    formula = Gemm(("n", 0), ("n", 1), "w", True, epilogue)
    facts = (facts_of(x), facts_of(residual))
    return Workload("region", formula, facts, ("int8",), weight, constants), [x, residual]


def norm(rng: np.random.Generator) -> tuple[Workload, list[torch.Tensor]]:
    """The sum of two, normalized."""
    b = Builder(TENSOR, TENSOR, constant("scale"), constant("bias"), scalar(1e-5))
    y = spelled.layer_norm(b, b("add", 0, 1), 2, 3, 4)
    inputs = [torch.from_numpy(rng.standard_normal((B, S, N), dtype=np.float32)).half() for _ in range(2)]
    constants = {name: rng.standard_normal(N).astype(np.float32) for name in ("scale", "bias")}
    facts = tuple(map(facts_of, inputs))
    return Workload("region", Rows(b.build(y)), facts, ("float16",), None, constants), inputs


def expected(workload: Workload, inputs: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    weight = None if workload.weight is None else torch.from_numpy(workload.weight)
    constants = {name: torch.from_numpy(array) for name, array in workload.constants.items()}
    return compute(workload.formula, inputs, workload.outputs, weight, constants)


@pytest.mark.parametrize("live", [0, 1, 9, 16, 17, B * S])
@pytest.mark.parametrize(("make", "list_all"), [(product, list_gemm), (norm, list_rows)])
def test_only_rows_that_count_are_stored(make, list_all, live: int, rng: np.random.Generator):
    workload, inputs = make(rng)
    workload = replace(workload, live_rows=live)
    listed = stopping(list_all(workload, A100), workload.formula)
    tactics = [x for x in listed if isinstance(x, Tactic) and LIVE in x.drafts[0].inputs]
    assert tactics
    want = expected(workload, inputs)
    for tactic in tactics[:2]:
        with OpenTactic(tactic, "region", {}, CPU, weights={}, live_rows=live, fill=poison) as opened:
            (got,) = found = opened.run(inputs)
            assert check(workload, tactic, found, want) is None
            rest = got.flatten(0, 1)[live:]
            assert bool((rest.isnan() if rest.is_floating_point() else rest == POISON).all())


def test_rows_behind_the_last_are_not_compared(rng: np.random.Generator):
    workload, inputs = norm(rng)
    (y,) = expected(workload, inputs)
    (first,) = rows_that_count(replace(workload, live_rows=5), [y])
    assert torch.equal(first, y.reshape(-1, N)[:5])
    assert rows_that_count(workload, [y]) == [y]


def test_what_other_rows_are_computed_with_is_another_kernel(rng: np.random.Generator):
    workload, _ = product(rng)
    tactic = next(x for x in list_gemm(workload, A100) if isinstance(x, Tactic))
    (spec,) = tactic.drafts[0].kernels
    live = with_live_rows(spec)
    assert live is not None
    assert live.signature == (*spec.signature, ("live_ptr", "*i32"))
    assert dict(live.constants) == {
        **{name: value for name, value in spec.constants if name != "live_ptr"},
        "HAS_LIVE": True,
    }
    assert with_live_rows(KernelSpec("pool", "pool", (), frozenset(), ())) is None


def test_a_tactic_that_cannot_stop_stays_as_it_is(rng: np.random.Generator):
    workload, _ = product(rng)
    library = [x for x in list_gemm(workload, A100) if isinstance(x, Tactic) and x.source == "cublaslt"]
    assert library
    assert stopping(library, workload.formula) == library


def test_work_is_that_of_the_rows_that_count(rng: np.random.Generator):
    workload, _ = product(rng)
    whole, part = work_of(workload), work_of(replace(workload, live_rows=9))
    assert whole.products == B * S * K * N
    assert part.products == 9 * K * N
    weight_bytes = N * K
    assert part.moved_bytes - weight_bytes == (whole.moved_bytes - weight_bytes) * 9 // (B * S)
    rows, _ = norm(rng)
    assert work_of(replace(rows, live_rows=7)).elements == 7 * N
