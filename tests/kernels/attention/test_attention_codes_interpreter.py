# SPDX-License-Identifier: Apache-2.0
"""Codes of queries, keys and values, made in Triton's interpreter, against numpy."""

import math

import numpy as np
import pytest
import torch

from quantrt.kernels.attention.spec import AttentionProblem
from quantrt.kernels.attention_codes.spec import CodeFormat, encoder_of
from quantrt.kernels.kernel_text import kernel_key
from quantrt.plan.program import Step
from quantrt.regions.expression import IDENTITY
from quantrt.runtime.cuda.device.launcher import InterpreterLauncher
from quantrt.runtime.cuda.runner import Assets
from quantrt.runtime.cuda.runners.encode_attention import open_runner
from tests.kernels.value_orders import columns_in_order, keys_in_order

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")

CPU = torch.device("cpu")
LARGEST = {"int8": 127.0, "fp8": 448.0}
SCALE = 0.125
SAMPLES = 128


def problem_of(q: torch.Tensor, k: torch.Tensor, unit: int) -> AttentionProblem:
    B, H, S, D = q.shape
    dtype = str(q.dtype).removeprefix("torch.")
    return AttentionProblem(
        B, H, S, k.shape[2], H // k.shape[1], D, dtype, unit, "none", "", 1, False, False, IDENTITY, (dtype,)
    )  # fmt: skip


def encoded(
    inputs: list[torch.Tensor], form: CodeFormat, *, unit: int = 8, is_transposed: bool = False
) -> list[torch.Tensor]:
    keys = inputs[1].transpose(-1, -2) if is_transposed else inputs[1]
    spec = encoder_of(problem_of(inputs[0], keys, unit), form)
    options = {"scale": SCALE, "is_transposed": is_transposed, "dtype": "float16"}
    step = Step("encode_attention", "region", ("q", "k", "v"), (), options, (), (kernel_key(spec),))
    runner = open_runner(step, Assets(CPU, {}, {kernel_key(spec): InterpreterLauncher(spec)}))
    allocate = lambda number, shape, dtype, **_: torch.full(shape, 77.0).to(dtype)  # noqa: E731
    return list(runner.run(inputs, allocate))


def drawn(rng: np.random.Generator, *shape: int) -> torch.Tensor:
    return torch.from_numpy(rng.standard_normal(shape).astype(np.float32)).half()


def from_projection(rng: np.random.Generator, B: int, S: int, H: int, D: int) -> list[torch.Tensor]:
    """Views of one product with all three, as [B, H, S, D] each."""
    merged = drawn(rng, B, S, 3, H, D)
    return [merged[:, :, part].transpose(1, 2) for part in range(3)]


def is_near(codes: torch.Tensor, scales: torch.Tensor, x: torch.Tensor, kind: str) -> bool:
    """Whether codes times scales are x, rounded: half a step of int8, half a unit of FP8's last digit."""
    back = codes.double() * scales.double()
    step = scales.double() if kind == "int8" else torch.maximum(x.abs() / 8, scales.double() / 512)
    return bool(((back - x).abs() <= step * 0.501).all())


@pytest.mark.parametrize(("scores", "order"), [("int8", "fragments"), ("fp8", "fragments"), ("int8", "keys")])
@pytest.mark.parametrize(
    ("B", "H", "S", "D", "block_n"), [(1, 1, 1, 32, 64), (2, 3, 77, 40, 64), (1, 2, 300, 64, 128)]
)
def test_codes_times_scales_are_what_was_coded(B, H, S, D, block_n, scores, order, rng):
    q, k, v = from_projection(rng, B, S, H, D)
    columns = max(32, 1 << (D - 1).bit_length())
    form = CodeFormat(scores, "fp8", block_n, columns, order)
    q_codes, q_scale, k_codes, k_scale, v_codes, v_scale = encoded([q, k, v], form)
    assert not q_codes[..., D:].float().any()
    assert not k_codes[..., D:].float().any()
    factor = SCALE * math.log2(math.e)
    assert is_near(q_codes[..., :D], q_scale[..., None] / factor, q.double(), scores)
    largest = q.double().abs().amax(-1)
    torch.testing.assert_close(q_scale.double(), largest / LARGEST[scores] * factor, rtol=1e-6, atol=0)

    samples = torch.arange(SAMPLES) * S // SAMPLES if S > SAMPLES else torch.arange(S)
    smooth = k.double() - k[:, :, samples].double().mean(2, keepdim=True)
    for start in range(0, S, block_n):
        part = slice(start, start + block_n)
        scale = k_scale[:, :, start // block_n, None, None]
        assert is_near(k_codes[:, :, part, :D], scale, smooth[:, :, part], scores)

    width = v_codes.shape[3]
    assert width == -(-S // 16) * 16
    natural = torch.empty(B, H, width, columns, dtype=torch.float64)
    turned = v_codes.double().swapaxes(2, 3)
    rows = columns_in_order(columns) if order == "fragments" else np.arange(columns)
    for place, key in enumerate(keys_in_order(width)):
        natural[:, :, key, rows] = turned[:, :, place]
    assert not natural[:, :, S:].any()
    assert not natural[..., D:].any()
    for start in range(0, S, block_n):
        part = slice(start, min(S, start + block_n))
        scale = v_scale[:, :, start // block_n, None, None]
        assert is_near(natural[:, :, part, :D], scale, v[:, :, part].double(), "fp8")


def test_what_all_keys_have_costs_no_digits(rng):
    q, k, v = from_projection(rng, 1, 200, 2, 32)
    shifted = k + drawn(rng, 1, 2, 1, 32) * 100
    form = CodeFormat("int8", "floats", 64, 32)
    *_, scales = encoded([q, k, v], form)
    *_, others = encoded([q, shifted.half(), v], form)
    assert float((others / scales).max()) < 1.1


def test_values_that_stay_floats_are_not_coded(rng):
    inputs = from_projection(rng, 1, 20, 2, 32)
    assert len(encoded(inputs, CodeFormat("int8", "floats", 64, 32))) == 4


def test_values_alone_get_the_codes_that_they_get_beside_others(rng):
    inputs = from_projection(rng, 2, 100, 2, 32)
    *_, codes, scales = encoded(inputs, CodeFormat("int8", "fp8", 64, 32))
    alone = encoded(inputs, CodeFormat("floats", "fp8", 64, 32))
    assert len(alone) == 2
    assert torch.equal(alone[0].view(torch.uint8), codes.view(torch.uint8))
    assert torch.equal(alone[1], scales)


def test_heads_that_share_keys_and_keys_as_they_are_exported(rng):
    q, k, v = drawn(rng, 2, 4, 9, 32), drawn(rng, 2, 2, 70, 32), drawn(rng, 2, 2, 70, 32)
    form = CodeFormat("int8", "fp8", 64, 32)
    plain = encoded([q, k, v], form)
    turned = encoded([q, k.transpose(-1, -2), v], form, is_transposed=True)
    for one, other in zip(plain, turned, strict=True):
        assert torch.equal(one.float(), other.float())
    assert plain[2].shape == (2, 2, 70, 32)


def test_zeros_and_numbers_that_are_none(rng):
    q, k, v = from_projection(rng, 1, 130, 1, 32)
    q[0, 0, 3] = 0.0
    q[0, 0, 5, 7] = math.inf
    k[0, 0, 64:128] = 0.0
    v[0, 0, 64:128] = 0.0
    v[0, 0, 129, 3] = math.nan
    q_codes, q_scale, k_codes, k_scale, v_codes, v_scale = encoded(
        [q, k, v], CodeFormat("int8", "fp8", 64, 32)
    )
    assert not q_codes[0, 0, 3].any()
    assert float(q_scale[0, 0, 3]) > 0
    assert q_scale[0, 0].isnan().nonzero().flatten().tolist() == [5]
    assert v_scale[0, 0].isnan().tolist() == [False, False, True]
    assert float(v_scale[0, 0, 1]) > 0
    assert k_scale.isfinite().all()
