# SPDX-License-Identifier: Apache-2.0
"""The convolution with a producer and two consumers: its own source in Python, at random interleavings."""

import math

import numpy as np
import pytest
import torch

from quantrt.errors import DeviceError
from quantrt.kernels.conv_hopper import triton_kernel
from quantrt.kernels.conv_hopper.spec import BoxTile, kernel_of
from quantrt.kernels.gemm_hopper.spec import HopperTile, rows_in_order
from quantrt.kernels.jit import boxes, fragments, ring
from quantrt.runtime.cuda.device.launcher import InterpreterLauncher
from tests.kernels.convolutions.cases import Case
from tests.kernels.convolutions.test_conv2d_compiled import problem
from tests.kernels.gluon_on_cpu import (
    Descriptor,
    Pointer,
    Rules,
    Scalar,
    View,
    altered,
    four_raw_floats,
    run_program,
)

PERIOD = triton_kernel.PERIOD.value
BLOCK_K = 16
MARGIN = 40
JUNK = 99
EMPTY = -77777


class Windows(Descriptor):
    """Images [images, H, W, C] that are copied in boxes and steps; what a box leaves of a block is junk."""

    def __init__(self, images, box, steps, rows):
        super().__init__(images, (1, 1, rows, BLOCK_K))
        self.box, self.steps = box, steps
        self.block_type.nbytes = math.prod(box) * BLOCK_K * images.itemsize
        beyond = ((0, box[0]), (MARGIN, MARGIN), (MARGIN, MARGIN), (0, BLOCK_K))
        self.padded = np.pad(images, beyond)

    def read(self, *place):
        image, line, column, channel = place
        assert image < len(self.tensor)
        spans = [slice(image, image + self.box[0])]
        for first, length, step in zip((line, column), self.box[1:], self.steps, strict=True):
            spans.append(slice(first + MARGIN, first + MARGIN + length * step, step))
        found = np.full(self.block, JUNK, self.tensor.dtype)
        pixels = self.padded[*spans, channel : channel + BLOCK_K].reshape(-1, BLOCK_K)
        found[0, 0, : math.prod(self.box)] = pixels
        return found


class Stages:
    """The stages of x, of so many rows each, for what the kernel takes from a row of shared memory on."""

    def __init__(self, rows):
        self.rows, self.stages = rows, {}

    def block(self, ring, row, shape, layout):
        stage, first = divmod(row, self.rows)
        assert first % PERIOD == 0
        if len(shape) == 4:  # what a copy fills
            assert first == 0
            slot = ring.index(row // PERIOD)  # the first of the stage stands for all of it
            if stage not in self.stages:
                slot.data = np.zeros(shape, slot.data.dtype)
            return self.stages.setdefault(stage, slot)
        part = slice(first, first + shape[0])
        assert part.stop <= self.rows
        return View(self.stages[stage], lambda data: data.reshape(-1, shape[1])[part])


def convolution(
    case,
    box,
    *,
    tile=(64, 64),
    stages=3,
    programs=2,
    run=4,
    seed=0,
    dtype=np.int8,
    ahead=(1, 1),
    has_tensor=False,
    holds_w=False,
    is_column=False,
    is_looped=False,
    pitches=(),
    module=triton_kernel,
    boxes=boxes,
):
    """conv(x, w) * scale by the kernel, and by torch."""
    rng = np.random.default_rng(seed)
    x = rng.integers(-9, 9, (case.images, *case.size, case.C)).astype(dtype)
    w = rng.integers(-9, 9, (case.N, *case.kernel, case.C)).astype(dtype)
    scale = rng.integers(1, 9, case.N).astype(np.float32)
    shape = (case.images, *case.output, case.N)
    residual = rng.integers(-9, 9, shape).astype(np.int8)
    wide = [(*shape[:3], pitch or case.N) for pitch in (*pitches, 0, 0, 0)[1:3]]  # of the tensor and of y
    given = np.full(wide[0], JUNK, np.int8)
    given[..., : case.N] = residual
    y = np.full(math.prod(wide[1]), EMPTY, np.float32)
    block_m, block_n = tile
    taps = case.kernel[0] if is_column else 1
    further = (taps - 1) * case.dilations[0]
    copied = (box[0], box[1] + further, box[2])
    arguments = (
        Windows(x, copied, case.strides, block_m * (2 if is_column else 1)),  # a power of 2
        Descriptor(rows_in_order(w.reshape(case.N, -1), run), (block_n, BLOCK_K)),
        (Pointer(y),),
        (Pointer(scale), Pointer(given.reshape(-1))),
        *map(Scalar, shape[:3]),
        case.N,
        *case.kernel,
        case.C,
        case.strides,
        case.pads[:2],
        case.dilations,
        ("constant", "tensor") if has_tensor else ("constant",),
        (),
        (1,),
        pitches if has_tensor else pitches[1:],
        run,
        box,
        taps,
        holds_w,
        block_m,
        block_n,
        BLOCK_K,
        stages,
        2,
        *ahead,
        is_looped,
        1,
    )
    for program in reversed(range(programs)):  # what is stored beyond a tile is not stored again later
        stages_of_x = Stages(block_m + further * box[2])
        run_program(
            module,
            "conv_hopper",
            arguments,
            seed=seed + 1000 * program,
            program=program,
            programs=programs,
            others=(fragments, ring, boxes),
            reads_once=not (holds_w or is_column),
            rows_from=stages_of_x.block,
            four_raw_floats=four_raw_floats,
            registers_of=lambda sums, operands, terms, program: (sums.astype(np.float32), *operands),
            evaluate=lambda program, r: (sum(r[2:], start=r[0] * r[1]),),
            stored=lambda program, output, results, element, is_finite: results[0],
        )
    tensors = [torch.from_numpy(array.astype(np.float32)).movedim(-1, 1) for array in (x, w)]
    top, left, bottom, right = case.pads
    padded = torch.nn.functional.pad(tensors[0], (left, right, top, bottom))
    sums = torch.nn.functional.conv2d(padded, tensors[1], stride=case.strides, dilation=case.dilations)
    expected = sums.movedim(1, -1).numpy() * scale
    assert (y.reshape(wide[1])[..., case.N :] == EMPTY).all()
    return y.reshape(wide[1])[..., : case.N], expected + residual if has_tensor else expected


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(
    ("case", "box", "options"),
    [
        (Case(C=16, N=64, size=(8, 8), images=1), (1, 8, 8), {"programs": 1}),
        (Case(C=16, N=64, size=(9, 11), images=3), (1, 5, 11), {}),  # fewer pixels than rows
        (Case(C=40, N=70, size=(7, 7), images=5), (3, 3, 7), {}),  # nothing is a multiple of its block
        (Case(C=16, N=64, size=(3, 5), images=20), (18, 1, 3), {"stages": 2}),
        (Case(C=32, N=64, size=(15, 13), strides=(2, 2)), (2, 4, 7), {}),
        (Case(C=16, N=64, size=(15, 13), strides=(2, 1), kernel=(1, 1), pads=(0,) * 4), (1, 4, 13), {}),
        (Case(C=16, N=64, size=(9, 9), pads=(0, 1, 2, 1), dilations=(2, 1)), (1, 7, 9), {}),
        (Case(C=16, N=64, size=(1, 50), kernel=(1, 5), pads=(0, 2, 0, 2)), (1, 1, 50), {}),
        (
            Case(C=32, N=200, size=(10, 10), images=4),
            (1, 12, 10),
            {"tile": (128, 128), "run": 8, "has_tensor": True, "ahead": (1, 3), "programs": 3},
        ),
        (Case(C=40, N=64, size=(10, 9), images=3), (1, 7, 9), {"holds_w": True, "stages": 2}),
        (Case(C=16, N=60, size=(12, 9), images=2), (1, 4, 9), {"holds_w": True, "programs": 1}),
        (Case(C=16, N=70, size=(10, 9), images=3), (1, 8, 8), {"is_column": True, "holds_w": False}),
        (Case(C=40, N=64, size=(13, 9), images=3), (1, 8, 8), {"is_column": True, "holds_w": True}),
        (
            Case(C=24, N=64, size=(13, 20), strides=(1, 2), dilations=(2, 1), pads=(2, 1, 2, 0)),
            (1, 4, 8),
            {"is_column": True, "stages": 2},
        ),
        (
            Case(C=32, N=200, size=(10, 10), images=4),
            (1, 12, 10),
            {"tile": (128, 128), "run": 8, "has_tensor": True, "ahead": (2, 2), "is_looped": True},
        ),
        (
            Case(C=16, N=70, size=(9, 9)),
            (1, 8, 8),
            {"has_tensor": True, "is_column": True, "is_looped": True},
        ),
        (Case(C=24, N=100, size=(10, 6)), (1, 10, 6), {"dtype": np.float32, "has_tensor": True}),
        (Case(C=16, N=70, size=(9, 9)), (1, 8, 8), {"has_tensor": True, "pitches": (0, 96, 160)}),
        (Case(C=16, N=64, size=(9, 9)), (1, 6, 9), {"pitches": (0, 0, 100)}),
        (
            Case(C=16, N=200, size=(10, 10), images=4),
            (1, 5, 10),
            {"tile": (64, 64), "has_tensor": True, "stages": 8},
        ),
        (
            Case(C=40, N=64, size=(13, 9), images=3),
            (1, 8, 8),
            {"is_column": True, "holds_w": True, "has_tensor": True},
        ),
        (Case(C=16, N=64, size=(3, 180)), (1, 1, 64), {"has_tensor": True}),
        (Case(C=16, N=64, size=(2, 2), images=70), (64, 1, 1), {"has_tensor": True}),
    ],
)
def test_every_element_is_that_of_the_reference(case, box, options, seed):
    found, expected = convolution(case, box, seed=seed, **options)
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("    parity = 1\n", "    parity = 0\n"),
        ("    turn = 1 - CONSUMER\n", "    turn = CONSUMER\n"),
        ("    block = CONSUMER * STEPS\n", "    block = 0\n"),
        ("        mbarrier.wait(turns.index(CONSUMER), turn)\n", ""),
        ("warpgroup_mma_wait(TAPS, deps=(sums,))", "warpgroup_mma_wait(TAPS + 1, deps=(sums,))"),
        ("BOX[0] * BOX[1] * BOX[2] + (TAPS - 1) * REACH", "X_ROWS"),
    ],
)
def test_what_is_wrong_is_found(right, wrong, tmp_path):
    some_are_wrong(module=altered(triton_kernel, right, wrong, tmp_path))


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("gl.minimum(images - corner[0], BOX[0])", "images - corner[0]"),
        ("gl.minimum(P - corner[1], BOX[1])", "BOX[1]"),
        ("gl.minimum(Q - corner[2], BOX[2])", "BOX[2]"),
    ],
)
def test_what_is_wrong_of_boxes_is_found(right, wrong, tmp_path):
    some_are_wrong(boxes=altered(boxes, right, wrong, tmp_path))


def some_are_wrong(**modules):
    case = Case(C=32, N=100, size=(9, 11), images=3)
    with pytest.raises((Rules, AssertionError, IndexError, NameError)):
        for seed in range(10):
            found, expected = convolution(case, (1, 6, 10), stages=4, programs=3, seed=seed, **modules)
            np.testing.assert_array_equal(found, expected)


def test_on_a_cpu_it_is_refused():
    spec = kernel_of(problem("int8"), BoxTile(HopperTile(64, 64, 2), (1, 4, 14)))
    with pytest.raises(DeviceError, match="in Gluon, which has no interpreter"):
        InterpreterLauncher(spec)
