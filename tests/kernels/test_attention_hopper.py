# SPDX-License-Identifier: Apache-2.0
"""Attention with a producer and consumers: its own source in Python, at random interleavings."""

import ml_dtypes
import numpy as np
import pytest

from quantrt.errors import DeviceError
from quantrt.kernels.attention_codes.spec import columns_in_order, keys_in_order
from quantrt.kernels.attention_fragments import triton_kernel as fragments
from quantrt.kernels.attention_hopper import triton_kernel
from quantrt.kernels.attention_hopper.spec import HopperAttention, kernel_of
from quantrt.runtime.cuda.launcher import InterpreterLauncher
from tests.kernels.gluon_on_cpu import Descriptor, Pointer, Rules, Scalar, altered, run_program
from tests.kernels.test_attention_compiled import bert

ROWS = 64
BLOCK_D = 16
FP8 = ml_dtypes.float8_e4m3fn


def attended(
    sizes,
    *,
    scores="int8",
    values="fp8",
    groups=1,
    block_n=32,
    columns=BLOCK_D,
    stages=3,
    consumers=2,
    promotes=True,
    takes_turns=False,
    is_causal=False,
    programs=2,
    seed=0,
    rounds_weights=False,
    module=triton_kernel,
):
    """softmax(q @ k^T) @ v by the kernel, and by numpy in float64; "floats" are float32."""
    B, H, S, T = sizes
    G = H // groups
    rng = np.random.default_rng(seed)
    blocks = -(-T // block_n)
    has_codes = scores == "int8"
    kind = np.int8 if has_codes else np.float32
    padded = np.zeros((B, H, S, BLOCK_D)), np.zeros((B, G, T, BLOCK_D)), np.zeros((B, G, T, BLOCK_D))
    q, k, v = padded
    q[..., :columns] = (
        rng.integers(-127, 128, (B, H, S, columns)) if has_codes else rng.standard_normal((B, H, S, columns))
    )
    k[..., :columns] = (
        rng.integers(-127, 128, (B, G, T, columns)) if has_codes else rng.standard_normal((B, G, T, columns))
    )
    v[..., :columns] = rng.integers(-8, 9, (B, G, T, columns)) / 8
    q_scale = (rng.random((B, H, S)) + 0.5).astype(np.float32) * np.float32(1e-3 if has_codes else 1)
    k_scale = (rng.random((B, G, blocks)) + 0.5).astype(np.float32) * np.float32(0.2)
    v_scale = (10 ** rng.uniform(-2, 2, (B, G, blocks))).astype(np.float32)
    width = -(-T // 16) * 16
    turned = np.zeros((B, G, BLOCK_D, -(-T // block_n) * block_n), np.float32)
    turned[..., :T] = v.swapaxes(2, 3)
    turned = turned[:, :, columns_in_order(BLOCK_D)][..., keys_in_order(turned.shape[3])][..., :width]
    v_kind = FP8 if rounds_weights else np.float32
    if values == "fp8":
        v_desc = Descriptor(np.ascontiguousarray(turned).astype(v_kind), (1, 1, BLOCK_D, block_n), bits=8)
    else:
        v_desc = Descriptor(v.astype(np.float32), (1, 1, block_n, BLOCK_D))
    bits = 8 if has_codes else 32
    y = np.full(B * H * S * columns, -77777, np.float32)
    scale = 0.7
    arguments = (
        Descriptor(q.astype(kind), (1, 1, ROWS, BLOCK_D), bits),
        Descriptor(k.astype(kind), (1, 1, block_n, BLOCK_D), bits),
        v_desc,
        *(Pointer(array.reshape(-1)) for array in (q_scale, k_scale, v_scale)),
        Pointer(y),
        *(0,) * 5,
        *map(Scalar, (B, H, S, T, S * H * columns, columns, H * columns)),
        scale,
        1,
        groups,
        columns,
        is_causal,
        (),
        (),
        (0,),
        block_n,
        BLOCK_D,
        stages,
        consumers,
        promotes,
        takes_turns,
        0,
    )
    for program in range(programs):
        run_program(
            module,
            "attention_hopper",
            arguments,
            seed=seed + 1000 * program,
            program=program,
            programs=programs,
            others=(fragments,),
            reads_once=False,
            exp2=np.exp2,
            evaluate=lambda program, r: r,
            stored=lambda program, output, results, element: results[0],
        )
    keys = np.repeat(k_scale, block_n, 2)[..., :T, None]
    if has_codes:
        q, k = q * q_scale[..., None], k * keys
    else:
        q = q * scale
    if values == "fp8":
        v = v * np.repeat(v_scale, block_n, 2)[..., :T, None]
    k, v = np.repeat(k, groups, 1), np.repeat(v, groups, 1)
    products = q @ k.swapaxes(2, 3)
    if is_causal:
        products = np.where(np.arange(T) <= np.arange(S)[:, None], products, -np.inf)
    p = np.exp2(products - products.max(3, keepdims=True))
    expected = (p / p.sum(3, keepdims=True) @ v)[..., :columns]
    return y.reshape(B, S, H, columns).swapaxes(1, 2), expected


def relative(found, expected):
    return float(np.linalg.norm(found - expected) / np.linalg.norm(expected))


CASES = [
    ((1, 1, 64, 32), {"programs": 1}),  # one block; the second consumer's queries are not there
    ((1, 1, 130, 77), {"programs": 1}),
    ((2, 3, 200, 100), {}),
    ((1, 2, 130, 333), {"stages": 2, "programs": 3}),
    ((1, 4, 70, 65), {"groups": 2}),
    ((1, 2, 150, 90), {"columns": 12}),
    ((2, 1, 300, 300), {"consumers": 3, "takes_turns": True}),
    ((1, 3, 260, 160), {"takes_turns": True, "programs": 1}),
    ((1, 2, 200, 200), {"promotes": False}),
    ((1, 2, 200, 200), {"is_causal": True}),
    ((1, 2, 200, 90), {"is_causal": True, "promotes": False, "programs": 1}),
    ((1, 2, 90, 300), {"is_causal": True, "takes_turns": True}),
    ((1, 2, 130, 200), {"values": "floats", "promotes": False}),
    ((1, 2, 130, 200), {"scores": "floats", "values": "floats", "promotes": False}),
    ((1, 1, 1, 1), {"programs": 1}),
]


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize(("sizes", "options"), CASES)
def test_every_element_is_that_of_the_reference(sizes, options, seed):
    found, expected = attended(sizes, seed=seed, **options)
    assert np.isfinite(found).all()
    assert (found != -77777).all()
    # Sums of codes share a rounding of 2**23 of them in their block, here 4e-4 at most.
    assert relative(found, expected) < (2e-4 if options.get("scores") != "floats" else 3e-6)


def test_weights_are_rounded_to_fp8():
    found, expected = attended((1, 2, 200, 200), rounds_weights=True)
    # Half a unit of the last of 4 digits at most, a third of that on average.
    assert 1e-3 < relative(found, expected) < 2**-4


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("    parity = 1\n", "    parity = 0\n"),
        ("    q_parity = 1\n", "    q_parity = 0\n"),
        ("turn = 1 if CONSUMER == 0 else 0", "turn = 0"),
        ("warpgroup_mma_wait(1, deps=(part,))", "part"),
        ("warpgroup_mma_wait(1, deps=(part,))", "warpgroup_mma_wait(2, deps=(part,))"),
        ("    scores = warpgroup_mma_wait(0, deps=(scores,))\n    mbarrier", "    mbarrier"),
        ("mbarrier.init(empty.index(i), count=CONSUMERS)", "mbarrier.init(empty.index(i), count=1)"),
        ("mbarrier.init(q_empty.index(i), count=CONSUMERS)", "mbarrier.init(q_empty.index(i), count=1)"),
        ("gl.where(is_last, parity, next_parity)", "next_parity"),
        ("there = gl.where(is_last, stage, following)", "there = following"),
        ("        slot = slot ^ 1\n        store", "        store"),
        ("q_parity = q_parity ^ slot\n\n", "q_parity = q_parity ^ 1\n\n"),
    ],
)
def test_a_wrong_protocol_is_found(right, wrong, tmp_path):
    module = altered(triton_kernel, right, wrong, tmp_path)
    with pytest.raises((Rules, AssertionError, TypeError, AttributeError)):
        for seed in range(12):
            found, expected = attended(
                (1, 3, 200, 130), seed=seed, programs=1, takes_turns=seed % 2 == 0, module=module
            )
            assert relative(found, expected) < 2e-4


def test_on_a_cpu_it_is_refused():
    spec = kernel_of(bert(mask="none"), HopperAttention("int8", "fp8", 64, 2))
    with pytest.raises(DeviceError, match="in Gluon, which has no interpreter"):
        InterpreterLauncher(spec)
