# SPDX-License-Identifier: Apache-2.0
"""Every family of kernels on bfloat16, in Triton's interpreter, against the reference."""

import numpy as np
import pytest
import torch

from quantrt.gpu import gpu_named
from quantrt.regions.expression import Expression, Operand
from quantrt.regions.region import Conv, Formula, Gemm, Pool, Rows
from quantrt.runtime.cuda.reference.compute import compute
from quantrt.tactics.cuda.candidates import list_tactics
from quantrt.tactics.cuda.tactic import Rejected, Tactic, Workload
from quantrt.tactics.cuda.timing.check import check
from tests.kernels.memory_bound import expressions as spelled
from tests.kernels.memory_bound.expressions import TENSOR, Builder, constant
from tests.kernels.products.gemm_problems import RIGHT, SUM
from tests.kernels.run_tactic import facts_of, run_tactic

FAMILIES = {"gate": "gemm", "max pool": "pool", "average pool": "pool"}
"""Of the kernels that a case is about, where it is not called after them."""

H200, T4 = gpu_named("H200"), gpu_named("T4")
EDGES = (("n", 0), ("n", 1), "w")

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")


def floats(rng: np.random.Generator, *shape: int) -> torch.Tensor:
    return torch.from_numpy(rng.standard_normal(shape, dtype=np.float32)).to(torch.bfloat16)


def biased() -> Expression:
    b = Builder(SUM, constant("bias"))
    return b.build(b("max", b("add", 0, 1), b.const(0.0)))


def conv(groups: int, **fields: object) -> Conv:
    given = {"strides": (1, 1), "dilations": (1, 1), "pads": (1, 1, 1, 1), "epilogue": biased()}
    return Conv(*EDGES, groups=groups, **{**given, **fields})


def gate() -> Gemm:
    b = Builder(SUM, RIGHT)
    return Gemm(*EDGES, True, b.build(b("mul", spelled.silu(b, 0), 1)), is_gated=True)


def norm() -> Rows:
    b = Builder(TENSOR, constant("bias"), Operand("scalar", value=1e-5))
    return Rows(b.build(spelled.layer_norm(b, 0, 1, 1, 2)))


def pool(kind: str) -> Pool:
    b = Builder(SUM)
    return Pool(("n", 0), kind, (3, 3), (2, 2), (1, 1), (1, 1, 1, 1), False, False, False, True, b.build(0))


CASES: dict[str, tuple[Formula, tuple[int, ...], tuple[int, ...] | None, int]] = {
    "gemm": (Gemm(*EDGES, True, biased()), (17, 41), (24, 41), 24),
    "gate": (gate(), (9, 32), (48, 32), 24),
    "split_k": (Gemm(*EDGES, True, biased()), (4, 4096), (32, 4096), 32),
    "conv2d": (conv(1), (2, 16, 7, 7), (24, 16, 3, 3), 24),
    "thin_conv2d": (conv(1), (1, 3, 16, 16), (16, 3, 3, 3), 16),
    "depthwise": (conv(16), (2, 16, 7, 7), (16, 1, 3, 3), 16),
    "max pool": (pool("max"), (2, 16, 7, 7), None, 16),
    "average pool": (pool("average"), (2, 16, 7, 7), None, 16),
    "rows": (norm(), (5, 40), None, 40),
}


def case_of(name: str, rng: np.random.Generator):
    """The workload, its inputs and what the reference makes of them."""
    formula, shape, weight_shape, channels = CASES[name]
    x = floats(rng, *shape)
    x = x.to(memory_format=torch.channels_last) if len(shape) == 4 else x
    weight = None if weight_shape is None else floats(rng, *weight_shape)
    bias = torch.from_numpy(rng.standard_normal(channels, dtype=np.float32))
    has_bias = any(x.name == "bias" for x in getattr(formula, "epilogue", norm().expression).operands)
    constants = {"bias": bias} if has_bias else {}
    array = None if weight is None else weight.float().numpy()
    arrays = {key: value.numpy() for key, value in constants.items()}
    workload = Workload("r", formula, (facts_of(x),), ("bfloat16",), array, arrays)
    return workload, [x], compute(formula, [x], ("bfloat16",), weight, constants)


@pytest.mark.parametrize("name", CASES)
def test_our_kernels(name: str, rng: np.random.Generator):
    workload, inputs, want = case_of(name, rng)
    rows = list_tactics(workload, H200)
    ours = [row for row in rows if isinstance(row, Tactic) and row.source == "triton"]
    families = {spec.family for tactic in ours for draft in tactic.drafts for spec in draft.kernels}
    expected = FAMILIES.get(name, name)
    assert expected in families, (families, [row.reason for row in rows if isinstance(row, Rejected)])
    tactic = next(
        row for row in ours if any(spec.family == expected for draft in row.drafts for spec in draft.kernels)
    )
    got, _ = run_tactic(tactic, inputs)
    assert got[0].dtype == torch.bfloat16
    assert check(workload, tactic, got, want) is None


@pytest.mark.parametrize("name", CASES)
def test_there_is_a_way_without_tensor_cores_for_it(name: str, rng: np.random.Generator):
    workload, _, _ = case_of(name, rng)
    assert any(isinstance(row, Tactic) for row in list_tactics(workload, T4))
