# SPDX-License-Identifier: Apache-2.0
"""A first layer and its max pool in one kernel: its own source in Python, against numpy."""

import types

import numpy as np
import pytest

from quantrt.kernels.gemm_hopper.spec import rows_in_order
from quantrt.kernels.jit import fragments, ring
from quantrt.kernels.pooled_conv import triton_kernel
from quantrt.kernels.pooled_conv.spec import BEFORE, CHANNELS, RUN, never_falls, segments_of
from quantrt.regions.expression import Operand
from tests.kernels.gluon_on_cpu import Descriptor, Pointer, Rules, Scalar, altered, run_program
from tests.kernels.memory_bound.expressions import Builder, constant, scalar

EMPTY = -77777
WIDTH, TAPS, R = 4, 4, 4
C = WIDTH * TAPS


def pooled(P, Q, *, images=2, lines=3, stages=8, seed=0, dtype=np.int8, module=triton_kernel):
    """max pool(conv(x, w)) * scale by the kernel, and by numpy; P by Q pooled pixels an image."""
    rng = np.random.default_rng(seed)
    U, V = 2 * P + R - 1, 2 * Q + TAPS - 1
    folded = rng.integers(-9, 9, (images, U, BEFORE + V, WIDTH)).astype(dtype)
    memory = np.concatenate([folded.reshape(-1), rng.integers(-9, 9, 64 * C).astype(dtype)])
    segments = segments_of(Q)
    line, pixel = folded.strides[1], folded.strides[2]
    steps = (line, 14 * pixel, pixel, 2 * pixel, folded.itemsize)
    windows = np.lib.stride_tricks.as_strided(memory, (images * U, segments, 2, 8, C), steps)
    w = rng.integers(-9, 9, (CHANNELS, R, C)).astype(dtype)
    scale = rng.integers(1, 9, CHANNELS).astype(np.float32)
    y = np.full(images * P * Q * CHANNELS, EMPTY, np.float32)
    arguments = (
        Descriptor(windows, (1, 4, 2, 8, C)),
        Descriptor(rows_in_order(w.reshape(CHANNELS, -1), RUN), (CHANNELS, C)),
        (Pointer(y),),
        (Pointer(scale),),
        *map(Scalar, (P, Q, U)),
        *(CHANNELS, R, C, ("constant",), (), (1,), (), RUN, lines, stages),
    )
    for image in range(images):
        for band in range(-(-P // lines)):
            for part in range(-(-segments // 4)):
                run_program(
                    module,
                    "pooled_conv",
                    arguments,
                    seed=seed,
                    program=(part, band, image),
                    programs=1,
                    others=(fragments, ring),
                    reads_once=False,
                    is_one_group=True,
                    pooled_layout=lambda run: types.SimpleNamespace(shape=[32, 4 * run]),
                    of_lanes_before=lambda x: np.roll(x, 1, axis=0),
                    registers_of=lambda sums, operands, terms, program: (sums, *operands),
                    evaluate=lambda program, r: (r[0] * r[1],),
                    stored=lambda program, output, results, element, is_finite: results[0],
                )
    sums = np.full((images, 2 * P + 2, 2 * Q + 2, CHANNELS), -np.inf, np.float32)
    sums[:, 1:-1, 1:-1] = 0
    for r in range(R):
        for tap in range(TAPS):
            x = folded[:, r : r + 2 * P, BEFORE + tap : BEFORE + tap + 2 * Q].astype(np.float32)
            sums[:, 1:-1, 1:-1] += x @ w[:, r, tap * WIDTH :][:, :WIDTH].T.astype(np.float32)
    taps = [sums[:, dy : dy + 2 * P : 2, dx : dx + 2 * Q : 2] for dy in range(3) for dx in range(3)]
    return y.reshape(images, P, Q, CHANNELS), np.max(taps, axis=0) * scale


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(
    ("P", "Q", "options"),
    [
        (1, 1, {}),
        (3, 7, {}),  # one band, one segment
        (7, 10, {}),  # the last band and the last segment are short
        (5, 29, {"lines": 2, "images": 1}),  # a segment for a second program
        (4, 6, {"lines": 4, "stages": 6}),
        (9, 5, {"lines": 9, "stages": 12, "images": 1}),
        (3, 8, {"dtype": np.float32}),
    ],
)
def test_every_pixel_is_the_largest_of_nine(P, Q, options, seed):
    found, expected = pooled(P, Q, seed=seed, **options)
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("mbarrier.wait(full.index(line % STAGES), line // STAGES & 1)", "pass"),
        ("line // STAGES & 1", "line // STAGES & 1 ^ 1"),
        ("2 * j + STAGES + i, lines", "2 * j + STAGES + 2 + i, lines"),
    ],
)
def test_a_wrong_protocol_is_found(right, wrong, tmp_path):
    module = altered(triton_kernel, right, wrong, tmp_path)
    with pytest.raises(Rules):
        for seed in range(60):
            pooled(7, 4, lines=7, stages=6, seed=seed, module=module)


@pytest.mark.parametrize(
    ("op", "order", "scale", "expected"),
    [
        ("mul", (0, 1), 0.25, True),
        ("mul", (1, 0), 0.25, True),
        ("mul", (0, 1), -0.25, False),
        ("mul", (0, 1), 0.0, False),
        ("sub", (0, 1), -3.0, True),
        ("sub", (1, 0), -3.0, False),
        ("div", (0, 1), 2.0, True),
        ("div", (1, 0), 2.0, False),
        ("mul", (0, 0), 1.0, False),
        ("pow", (0, 1), 1.0, False),
    ],
)
def test_which_epilogues_never_fall(op, order, scale, expected):
    b = Builder(Operand("accumulator"), constant("scale"), constant("bias"), scalar(0.5))
    y = b("quantize", b("max", b("add", b(op, *order), 2), b.const(0.0)), 3)
    values = {"scale": np.float32([scale, 2.0]), "bias": np.float32([-1.0, 1.0])}
    assert never_falls(b.build(y), values) is expected
