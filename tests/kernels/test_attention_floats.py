# SPDX-License-Identifier: Apache-2.0
"""Attention of floats with products on their way: its own source in Python, at random interleavings."""

import numpy as np
import pytest

from quantrt.kernels.attention_floats import triton_kernel
from quantrt.kernels.attention_fragments import triton_kernel as fragments
from quantrt.kernels.attention_hopper import triton_kernel as hopper
from tests.kernels.gluon_on_cpu import Descriptor, Pointer, Rules, Scalar, altered, run_program

ROWS = 64
BLOCK_D = 16
LOG2E = float(np.log2(np.e))
SCALE = 0.7
BLOCKED = -3.0e38


def attended(
    sizes,
    *,
    mask="none",
    has_rows=True,
    mask_type=np.float16,
    groups=1,
    block_n=32,
    columns=BLOCK_D,
    stages=3,
    consumers=2,
    programs=2,
    seed=0,
    module=triton_kernel,
):
    """softmax(masked(q @ k^T)) @ v by the kernel, and by numpy in float64."""
    B, H, S, T = sizes
    G = H // groups
    rng = np.random.default_rng(seed)
    q, k, v = (np.zeros((B, heads, length, BLOCK_D)) for heads, length in ((H, S), (G, T), (G, T)))
    for tensor in (q, k, v):
        tensor[..., :columns] = rng.integers(-8, 9, (*tensor.shape[:3], columns)) / 4
    given = _mask(rng, mask, (B, 1, S if has_rows else 1, T), mask_type)
    y = np.full(B * H * S * columns, -77777, np.float32)
    arguments = (
        Descriptor(q.astype(np.float32), (1, 1, ROWS, BLOCK_D)),
        Descriptor(k.astype(np.float32), (1, 1, block_n, BLOCK_D)),
        Descriptor(v.astype(np.float32), (1, 1, block_n, BLOCK_D)),
        Pointer(given.reshape(-1)),
        Pointer(y),
        *(0,) * 5,
        *map(Scalar, (B, H, S, T, given[0].size, 0, T, S * H * columns, columns, H * columns)),
        SCALE * (LOG2E if mask == "none" else 1.0),
        BLOCKED,
        1,
        1,
        groups,
        columns,
        mask,
        has_rows,
        (),
        (),
        (0,),
        block_n,
        BLOCK_D,
        stages,
        consumers,
    )
    for program in range(programs):
        run_program(
            module,
            "attention_floats",
            arguments,
            seed=seed + 1000 * program,
            program=program,
            programs=programs,
            others=(fragments, hopper),
            reads_once=False,
            exp2=np.exp2,
            evaluate=lambda program, r: r,
            stored=lambda program, output, results, element: results[0],
        )
    k, v = np.repeat(k, groups, 1), np.repeat(v, groups, 1)
    scores = _masked(SCALE * (q @ k.swapaxes(2, 3)), given, mask)
    p = np.exp(scores - scores.max(3, keepdims=True))
    expected = (p / p.sum(3, keepdims=True) @ v)[..., :columns]
    return y.reshape(B, S, H, columns).swapaxes(1, 2), expected


def _mask(rng, mask, shape, dtype):
    if mask == "added":
        least = -np.inf if dtype == np.float16 else np.finfo(dtype).min
        found = np.where(rng.random(shape) < 0.3, least, rng.standard_normal(shape)).astype(dtype)
        found[..., shape[3] // 2] = 0
    else:
        found = (rng.random(shape) < 0.5).astype(np.uint8)
    found[0, 0, 0] = least if mask == "added" and dtype != np.float16 else mask == "dropped"
    return found


def _masked(scores, given, mask):
    given = given.astype(np.float64)
    if mask == "none":
        return scores
    if mask == "added":
        return scores + given
    return np.where((given != 0) == (mask == "kept"), scores, BLOCKED)


def relative(found, expected):
    return float(np.linalg.norm(found - expected) / np.linalg.norm(expected))


CASES = [
    ((1, 1, 64, 32), {"programs": 1}),  # one block; the second consumer's queries are not there
    ((1, 1, 130, 77), {"programs": 1}),
    ((2, 3, 200, 100), {}),
    ((1, 2, 130, 333), {"stages": 4, "programs": 3}),
    ((1, 4, 70, 65), {"groups": 2}),
    ((1, 2, 150, 90), {"columns": 12}),
    ((2, 1, 300, 300), {"consumers": 3}),
    ((1, 1, 1, 1), {"programs": 1}),
    ((2, 2, 130, 100), {"mask": "added"}),
    ((2, 2, 200, 97), {"mask": "added", "mask_type": np.float32}),
    ((3, 2, 70, 40), {"mask": "added", "has_rows": False, "consumers": 3}),
    ((2, 2, 130, 65), {"mask": "kept"}),
    ((2, 2, 130, 65), {"mask": "dropped", "has_rows": False}),
]


@pytest.mark.filterwarnings("ignore:overflow encountered")  # of scores that are blocked, as on a GPU
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
        ("mbarrier.init(empty.index(i), count=CONSUMERS)", "mbarrier.init(empty.index(i), count=1)"),
        ("mbarrier.init(q_empty.index(i), count=CONSUMERS)", "mbarrier.init(q_empty.index(i), count=1)"),
        ("gl.where(is_over, parity, next_parity)", "next_parity"),
        ("source = gl.where(is_over, stage, following)", "source = following"),
        ("tile = gl.where(is_over, count, tile)", "tile = count"),
        ("next_block = gl.where(is_last, blocks - 1, block - 1)", "next_block = block"),
        ("        count += 1\n", ""),
        (
            "mbarrier.wait(q_full.index(tile & 1), (tile >> 1) & 1)",
            "mbarrier.wait(q_full.index(tile & 1), 0)",
        ),
        ("        mbarrier.arrive(empty.index(last), count=1)\n", ""),
    ],
)
def test_a_wrong_protocol_is_found(right, wrong, tmp_path):
    module = altered(triton_kernel, right, wrong, tmp_path)
    with pytest.raises((Rules, AssertionError, TypeError, AttributeError)):
        for seed in range(12):  # the last block of all in the last stage, or not
            sizes = (1, 3, 100, 130) if seed % 2 else (1, 5, 200, 130)
            found, expected = attended(sizes, mask="added", seed=seed, programs=1, module=module)
            assert relative(found, expected) < 2e-4
