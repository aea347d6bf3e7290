# SPDX-License-Identifier: Apache-2.0
"""Attention that reads keys and values once for a head: its own source in Python, at random interleavings."""

import numpy as np
import pytest

from quantrt.kernels.attention_fragments import triton_kernel as fragments
from quantrt.kernels.attention_resident import triton_kernel
from tests.kernels.gluon_on_cpu import Descriptor, Pointer, Rules, Scalar, altered, run_program
from tests.kernels.test_attention_hopper import relative

ROWS = 64
BLOCK_D = 16
BLOCK_N = 32


def attended(
    sizes,
    *,
    mask=None,
    visible=None,
    groups=1,
    columns=BLOCK_D,
    stages=3,
    consumers=2,
    rounds=1,
    programs=2,
    seed=0,
    module=triton_kernel,
):
    """softmax(0.7 q @ k^T + mask) @ v by the kernel, and by numpy in float64; floats are float32.

    Args:
        mask: its shape.
        visible: keys of the first sample, of those that the mask has; the others are hidden from all queries.
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
    has_rows = mask is not None and mask[2] > 1
    given = np.zeros((1, 1, 1, 1), np.float32)
    if mask is not None:
        given = (3 * rng.standard_normal(mask)).astype(np.float32)
        given[rng.random(mask) < 0.3] = -np.inf
        given[..., rng.integers(T)] = 0
        if visible is not None:
            given[0, ..., visible:] = -np.inf
            given[0, ..., 0] = 0
    y = np.full(B * H * S * columns, -77777, np.float32)
    q_memory = np.ascontiguousarray(q[..., :columns])
    arguments = (
        Pointer(q_memory.reshape(-1)),
        Descriptor(k, (1, 1, BLOCK_N, BLOCK_D), 16),
        Descriptor(v, (1, 1, BLOCK_N, BLOCK_D), 16),
        Descriptor(given, (1, 1, ROWS if has_rows else 1, BLOCK_N), 16),
        Pointer(y),
        *(0,) * 5,
        *map(Scalar, (B, H, S, T, rounds, H * S * columns, S * columns, columns)),
        *map(Scalar, (given.shape[0] > 1, given.shape[1] > 1)),
        *map(Scalar, (S * H * columns, columns, H * columns)),
        0.7 if mask is None else 0.7 * 1.4426950408889634,
        1,
        16,
        groups,
        columns,
        "none" if mask is None else "added",
        has_rows,
        (),
        (),
        (0,),
        BLOCK_N,
        BLOCK_D,
        stages,
        consumers,
        2,
    )
    for program in range(programs):
        run_program(
            module,
            "attention_resident",
            arguments,
            seed=seed + 1000 * program,
            program=program,
            programs=programs,
            others=(fragments,),
            reads_once=False,
            exp2=np.exp2,
            evaluate=lambda program, r: r,
            stored=lambda program, output, results, element: results[0],
            store_layout=lambda columns, element: None,
            is_hidden=lambda given: bool((given == -np.inf).all()),
        )
    k, v = np.repeat(k, groups, 1).astype(np.float64), np.repeat(v, groups, 1).astype(np.float64)
    products = 0.7 * (q.astype(np.float64) @ k.swapaxes(2, 3))
    products = products if mask is None else (products + given) / np.log(2)
    p = np.exp2(products - products.max(3, keepdims=True))
    expected = (p / p.sum(3, keepdims=True) @ v)[..., :columns]
    return y.reshape(B, S, H, columns).swapaxes(1, 2), expected


CASES = [
    ((1, 1, 1, 1), {"programs": 1}),
    ((1, 1, 64, 32), {"programs": 1}),  # one block; the second consumer's queries are not there
    ((1, 2, 300, 90), {"rounds": 3}),  # three blocks that stay
    ((1, 2, 300, 90), {"rounds": 2}),
    ((2, 3, 200, 90), {"rounds": 2, "stages": 4}),
    ((1, 2, 300, 150), {"rounds": 3}),  # five that are loaded again
    ((1, 2, 300, 65), {"rounds": 2, "consumers": 3}),
    ((1, 4, 70, 65), {"groups": 2}),
    ((1, 2, 150, 90), {"columns": 12, "rounds": 2}),
    ((2, 2, 200, 90), {"rounds": 2, "mask": (2, 1, 1, 90)}),
    ((2, 2, 200, 90), {"rounds": 2, "mask": (1, 2, 1, 90)}),
    ((2, 2, 200, 150), {"rounds": 2, "stages": 5, "mask": (2, 1, 1, 150), "visible": 65}),
    ((2, 2, 200, 150), {"rounds": 2, "mask": (2, 1, 1, 150), "visible": 1}),
    ((2, 2, 200, 90), {"rounds": 2, "mask": (2, 1, 200, 90)}),
    ((1, 2, 300, 150), {"rounds": 2, "mask": (1, 2, 300, 150), "consumers": 3}),
]


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize(("sizes", "options"), CASES)
def test_every_element_is_that_of_the_reference(sizes, options, seed):
    found, expected = attended(sizes, seed=seed, **options)
    assert (found != -77777).all()
    assert relative(found, expected) < 3e-6


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("    parity = 1\n", "    parity = 0\n"),
        ("    slot_parity = 1\n", "    slot_parity = 0\n"),
        ("scores = warpgroup_mma_wait(1, deps=(ahead,))", "scores = ahead"),
        ("warpgroup_mma_wait(1, deps=(ahead,))", "warpgroup_mma_wait(2, deps=(ahead,))"),
        (
            "    sums = warpgroup_mma_wait(0, deps=(sums,))\n    mbarrier",
            "    sums = sums.value\n    mbarrier",
        ),
        ("    mbarrier.arrive(empty.index(stage), count=1, pred=lets_go)\n    return x", "    return x"),
        ("count=1, pred=lets_go)\n    return", "count=1)\n    return"),
        ("mbarrier.init(empty.index(i), count=CONSUMERS)", "mbarrier.init(empty.index(i), count=1)"),
        (
            "mbarrier.init(mask_empty.index(i), count=CONSUMERS)",
            "mbarrier.init(mask_empty.index(i), count=1)",
        ),
        ("gl.where(has_more, later, following)", "following"),
        ("gl.where(has_more, later, following)", "later"),
        ("gl.where(has_more, following, stage)", "stage"),
        ("gl.where(lets_go, end % STAGES, begin)", "end % STAGES"),
        ("begin_parity ^ (end // STAGES & 1)", "begin_parity"),
        ("        turn = (turn + 1) % CONSUMERS\n\n", "\n"),
        ("if (i < blocks) | (blocks > STAGES):", "if i < blocks:"),
    ],
)
def test_a_wrong_protocol_is_found(right, wrong, tmp_path):
    module = altered(triton_kernel, right, wrong, tmp_path)
    with pytest.raises((Rules, AssertionError, TypeError, AttributeError)):
        for seed in range(12):
            for sizes in ((1, 3, 300, 90), (1, 2, 300, 150)):
                mask = (1, 1, *sizes[2:])
                options = {"programs": 1, "rounds": 2, "stages": 4, "mask": mask}
                found, expected = attended(sizes, seed=seed, module=module, **options)
                assert relative(found, expected) < 2e-4
