# SPDX-License-Identifier: Apache-2.0
"""Attention over codes compiled for GPUs that are not here: products of 8 bits, nothing spills."""

from dataclasses import replace
from pathlib import Path

import pytest

from quantrt.gpu import gpu_named
from quantrt.kernels.attention.spec import AttentionProblem
from quantrt.kernels.attention_coded.spec import CodedAttention, kernel_of, why_not
from quantrt.kernels.attention_coded.tiles import configs, shared_bytes
from quantrt.kernels.attention_codes.spec import encoder_of
from tests.kernels.attention.test_attention_compiled import bert
from tests.kernels.convolutions.test_conv2d_compiled import instructions

GPUS = {80: "a100", 86: "a10", 89: "4090", 90: "h200", 100: "b200", 120: "5090"}
LONG = replace(bert(mask="none", B=2), H=10, S=4096, T=4096)
MASKED = replace(LONG, mask="added", mask_dtype="float16", has_mask_rows=True)
PADDED = replace(LONG, mask="kept", mask_dtype="bool")

PRODUCTS = {80: "IMMA", 86: "IMMA", 89: "IMMA", 90: "IGMMA", 100: "IMMA", 120: "IMMA"}
"""Of int8. B200's tensor cores have none but those of older instructions that Triton knows."""
FEW_WORDS = {89: 2, 100: 16, 120: 40}
"""Of a thread, spilled before and behind the loop over keys. Attention in floats spills up to 164 there."""
FP8_PRODUCTS = {89: "QMMA", 90: "QGMMA", 120: "QMMA"}


@pytest.mark.parametrize("capability", GPUS)
def test_products_are_of_8_bits(compiled_all, capability: int, tmp_path: Path) -> None:
    how, *_ = configs(LONG, gpu_named(GPUS[capability]))
    assert how.values == ("fp8" if capability >= 89 else "floats")
    kernel, encoder = compiled_all(
        [kernel_of(LONG, how), encoder_of(LONG, how.format_of(LONG))], (capability,)
    )
    used = {name.split(".")[0] for name in instructions(kernel.cubins[capability], tmp_path)}
    assert PRODUCTS[capability] in used
    assert FP8_PRODUCTS.get(capability, PRODUCTS[capability]) in used
    assert "LDGSTS" in used  # copies run ahead of the products
    assert kernel.spills == encoder.spills == 0


@pytest.mark.slow
@pytest.mark.parametrize("capability", GPUS)
@pytest.mark.parametrize("problem", [LONG, MASKED, PADDED, replace(LONG, is_causal=True)])
@pytest.mark.parametrize("D", [64, 80, 160])
def test_nothing_spills_on_the_way(compiled_all, D: int, problem: AttentionProblem, capability: int) -> None:
    problem, gpu = replace(problem, D=D, unit=8), gpu_named(GPUS[capability])
    found = configs(problem, gpu)
    assert found
    kernels = compiled_all([kernel_of(problem, how) for how in found], (capability,))
    most = FEW_WORDS.get(capability, 0)
    assert not [how.name for how, kernel in zip(found, kernels, strict=True) if kernel.spills > most]
    assert max(kernel.shared_bytes[capability] for kernel in kernels) <= gpu.shared_memory_bytes


def test_shared_memory_is_that_of_tiles_and_masks() -> None:
    how = CodedAttention("int8", "fp8", 128, 64, 8, 3)
    assert shared_bytes(LONG, how) == 128 * 64 + 3 * 2 * 64 * 64
    assert shared_bytes(MASKED, how) - shared_bytes(LONG, how) == 2 * 128 * 64 * 2
    wide = replace(LONG, D=160)
    assert shared_bytes(wide, CodedAttention("int8", "floats", 64, 64, 8, 2)) == 64 * 256 + 2 * 64 * 256 * 3


@pytest.mark.parametrize("gpu", GPUS.values())
def test_tiles_are_few_and_fit(gpu: str) -> None:
    for D in (40, 64, 80, 128, 160, 256):
        problem, facts = replace(MASKED, D=D, unit=8), gpu_named(gpu)
        found = configs(problem, facts)
        assert 1 <= len(found) <= 3
        assert len({how.name for how in found}) == len(found)
        assert max(shared_bytes(problem, how) for how in found) < facts.shared_memory_bytes


def test_it_says_what_it_cannot_compute() -> None:
    h200 = gpu_named("h200")
    assert why_not(LONG, h200) is None
    assert why_not(MASKED, gpu_named("a10")) is None
    assert why_not(LONG, gpu_named("t4")) == "compute capability 75: 80 is the least"
    assert why_not(replace(LONG, D=264), h200) == "heads of 264: at most 256"
    assert why_not(replace(LONG, is_packed=True), h200) == "samples with lengths of their own"
    assert (
        why_not(replace(LONG, D=1, unit=1, T=2**27), h200) == "codes of a head that are beyond 32-bit offsets"
    )
