# SPDX-License-Identifier: Apache-2.0
"""Attention over few keys: its own source in Python, at random interleavings; and as machine code."""

import math
import re
import subprocess
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from triton import knobs

from quantrt.gpu import gpu_named
from quantrt.kernels.attention_short import triton_kernel
from quantrt.kernels.attention_short.spec import NEIGHBOURS, ShortAttention, configs, kernel_of, why_not
from quantrt.kernels.compile_all import CompileFailure
from quantrt.kernels.jit import attention_fragments as fragments
from quantrt.kernels.jit import ring
from quantrt.regions.expression import IDENTITY
from tests.kernels.attention.test_attention_compiled import bert
from tests.kernels.attention.test_attention_hopper import relative
from tests.kernels.attention.test_attention_hopper_compiled import ROW
from tests.kernels.gluon_on_cpu import Descriptor, Pointer, Rules, Scalar, altered, run_program

pytestmark = pytest.mark.filterwarnings("ignore:divide by zero:RuntimeWarning")  # of what is not taken

H200 = gpu_named("H200")
ROWS = 128
BLOCK_D = 16
BLOCK_N = 32
RESERVED_BYTES = 1024
"""Of shared memory, for each program (CUDA C++ programming guide, shared memory of 9.0)."""


def attended(
    sizes,
    *,
    mask=None,
    visible=None,
    groups=1,
    columns=BLOCK_D,
    stages=3,
    tail=BLOCK_N,
    programs=2,
    seed=0,
    module=triton_kernel,
):
    """softmax(0.7 q @ k^T + mask) @ v by the kernel, and by numpy in float64; floats are float32.

    Args:
        mask: its shape.
        visible: keys of the first sample that it does not hide; all of it is 0 before them.
    """
    B, H, S, T = sizes
    G = H // groups
    rng = np.random.default_rng(seed)
    q, k, v = (
        rng.standard_normal((B, heads, length, BLOCK_D)).astype(np.float32)
        for heads, length in ((H, S), (G, T), (G, T))
    )
    for array in (q, k, v):
        array[..., columns:] = 0
    given = np.zeros((1, 1, 1, 1), np.float32)
    if mask is not None:
        given = (3 * rng.standard_normal(mask)).astype(np.float32)
        given[rng.random(mask) < 0.3] = -np.inf
        given[..., rng.integers(T)] = 0
    if visible is not None:
        given[0] = 0
        given[0, ..., visible:] = -np.inf
    y = np.full(B * H * S * columns, -77777, np.float32)
    arguments = (
        Descriptor(q, (1, 1, ROWS, BLOCK_D), 16),
        Descriptor(k, (1, 1, BLOCK_N, BLOCK_D), 16),
        Descriptor(v, (1, 1, BLOCK_N, BLOCK_D), 16),
        Descriptor(given, (1, 1, 1, BLOCK_N), 16),
        (Pointer(y),),
        (),
        *map(Scalar, (B, H, S, T, given.shape[0] > 1, given.shape[1] > 1)),
        *map(Scalar, (S * H * columns, columns, H * columns)),
        0.7 * math.log2(math.e),
        1,
        16,
        groups,
        columns,
        "none" if mask is None else "added",
        False,
        (),
        (),
        (0,),
        BLOCK_N,
        BLOCK_D,
        tail,
        stages,
        8,
        NEIGHBOURS,
    )
    for program in range(programs):
        run_program(
            module,
            "attention_short",
            arguments,
            seed=seed + 1000 * program,
            program=program,
            programs=programs,
            others=(ring, fragments),
            reads_once=False,
            exp2=np.exp2,
            evaluate=lambda program, r: r,
            stored=lambda program, output, results, element: results[0],
            sums_layout=lambda columns: None,
            store_layout=lambda columns, element: None,
            uniform=lambda x: x,
        )
    k, v = np.repeat(k, groups, 1).astype(np.float64), np.repeat(v, groups, 1).astype(np.float64)
    products = 0.7 * (q.astype(np.float64) @ k.swapaxes(2, 3))
    products = products if mask is None else products + given
    largest = products.max(3, keepdims=True)
    p = np.exp(products - np.where(largest == -np.inf, 0, largest))
    expected = (p / np.maximum(p.sum(3, keepdims=True), 1e-300) @ v)[..., :columns]
    return y.reshape(B, S, H, columns).swapaxes(1, 2), expected


CASES = [
    ((1, 1, 1, 1), {"programs": 1}),
    ((1, 1, 128, 32), {"programs": 1}),
    ((1, 2, 300, 90), {}),
    ((2, 3, 200, 90), {"stages": 4, "programs": 3}),
    ((1, 4, 70, 65), {"groups": 2}),
    ((1, 2, 150, 90), {"columns": 12}),
    ((1, 3, 150, 69), {"tail": 8}),
    # Tails of lengths that the kernel was not made for: of no key, of all of a block, shorter than a tail.
    ((1, 3, 150, 64), {"tail": 8}),
    ((1, 3, 150, 90), {"tail": 8, "programs": 1}),
    ((1, 3, 150, 5), {"tail": 8}),
    ((1, 3, 150, 33), {"tail": 16, "stages": 2}),
    ((2, 2, 200, 96), {"mask": (2, 1, 1, 96)}),
    ((2, 2, 200, 90), {"mask": (1, 2, 1, 90), "programs": 1}),
    ((2, 2, 200, 128), {"mask": (2, 1, 1, 128), "visible": 65}),
    ((2, 2, 200, 128), {"mask": (2, 1, 1, 128), "visible": 1}),
    ((2, 2, 130, 90), {"mask": (2, 1, 1, 90), "visible": 0}),  # the first sample's are zeros
]


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize(("sizes", "options"), CASES)
def test_every_element_is_that_of_the_reference(sizes, options, seed):
    found, expected = attended(sizes, seed=seed, **options)
    assert np.isfinite(found).all()
    assert (found != -77777).all()
    assert relative(found, expected) < 3e-6


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("    stage = 0\n    parity = 1\n", "    stage = 0\n    parity = 0\n"),
        ("    q_parity = 1\n", "    q_parity = 0\n"),
        (
            "        scores = warpgroup_mma_wait(0, deps=(scores,))\n    return",
            "        scores = scores\n    return",
        ),
        ("    mbarrier.arrive(q_empty.index(0), count=1, pred=left == 1)\n", ""),
        ("pred=left == 1)", "pred=left == 2)"),
        ("        mbarrier.arrive(empty.index(last), count=1)\n", ""),
        ("    mbarrier.arrive(empty.index(stage), count=1)\n    mbarrier", "    mbarrier"),
        ("    mbarrier.wait(full.index(following), next_parity)\n", ""),
        ("        q_parity = q_parity ^ 1\n        mbarrier.wait(full", "        mbarrier.wait(full"),
        (
            "stage, parity = next_stage(stage, parity, sizes[4])",
            "stage = next_stage(stage, parity, sizes[4])[0]",
        ),
        ("following, next_parity = next_stage(", "next_parity, (following, _) = parity, next_stage("),
        ("        scores = hide_behind(scores, T - whole * BLOCK_N)\n", ""),
        ("key = (whole - i) * BLOCK_N", "key = i * BLOCK_N"),
    ],
)
def test_a_wrong_protocol_is_found(right, wrong, tmp_path):
    module = altered(triton_kernel, right, wrong, tmp_path)
    with pytest.raises((Rules, AssertionError, TypeError, AttributeError)):
        for seed in range(12):
            found, expected = attended((1, 3, 200, 150), seed=seed, module=module, programs=1)
            assert relative(found, expected) < 2e-4


FORMS = {
    "row of a mask, codes": (ROW, ShortAttention()),
    "row of a mask": (replace(ROW, epilogue=IDENTITY, outputs=("float16",)), ShortAttention()),
    "tail, codes": (replace(bert(mask="none", S=197), H=12), ShortAttention(16)),
    "bfloat16": (replace(bert(mask="none"), dtype="bfloat16"), ShortAttention()),
}


@pytest.fixture(scope="module")
def compiled(compile_kernels):
    specs = {name: kernel_of(problem, how) for name, (problem, how) in FORMS.items()}
    results = compile_kernels(list(specs.values()), (90,))
    return {name: results[spec] for name, spec in specs.items()}


@pytest.mark.parametrize("name", FORMS)
def test_machine_code(compiled, name, tmp_path: Path):
    kernel = compiled[name]
    assert not isinstance(kernel, CompileFailure), kernel.reason
    assert kernel.spills == 0
    # Two programs fit a multiprocessor.
    whole = H200.shared_memory_bytes + RESERVED_BYTES
    assert NEIGHBOURS * (kernel.shared_bytes[90] + RESERVED_BYTES) <= whole
    assert NEIGHBOURS * 32 * kernel.spec.num_warps * kernel.registers <= 65536
    path = tmp_path / "kernel.cubin"
    path.write_bytes(kernel.cubins[90])
    command = [knobs.nvidia.nvdisasm.path, "-c", str(path)]
    text = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    used = re.findall(r"\b(?:[A-Z0-9]*MMA|UTMALDG|USETMAXREG|STL|LDL|STG)\b[\w.]*", text)
    assert "HGMMA.64x64x16.F32" in {one.removesuffix(".BF16") for one in used}
    assert "UTMALDG.4D" in used
    assert any(one.startswith("USETMAXREG") for one in used)
    assert not any(one.startswith(("STL", "LDL")) for one in used)
    assert {one for one in used if one.startswith("STG")} == {"STG.E.128"}


def test_what_it_is_not_for():
    assert why_not(ROW, H200) is None
    assert why_not(bert(), H200) == "a mask with a row for every query"
    assert why_not(replace(bert(mask="none"), is_causal=True), H200) == "causal"
    assert why_not(replace(bert(mask="none"), is_packed=True), H200) == "samples with lengths of their own"
    assert why_not(bert(mask="none", S=2048), H200) == "2048 keys: at most 1024"
    assert why_not(replace(bert(mask="none"), D=80), H200) == "heads of 80: at most 64"
    assert "90 alone" in why_not(bert(mask="none"), gpu_named("A100"))


def test_the_last_step_is_as_wide_as_its_keys():
    def tails(**fields):
        return [how.tail for how in configs(replace(bert(mask="none"), **fields), H200)]

    assert tails() == [64]
    assert tails(T=197) == [16]
    assert tails(T=90) == [32]
    assert tails(T=100) == tails(T=5) == [64]
    assert [how.tail for how in configs(replace(ROW, T=197), H200)] == [64]
    assert tails(B=1, H=12) == []
    assert ShortAttention(16).name == "short 128x64+16"
    assert ShortAttention().name == "short 128x64"
