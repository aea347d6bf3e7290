# SPDX-License-Identifier: Apache-2.0
"""Convolutions of repeated pixels by phases: the kernel's own source in Python, its weights and its tiles."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from quantrt.kernels.conv2d.spec import ConvProblem
from quantrt.kernels.conv_hopper import triton_kernel
from quantrt.kernels.gemm_hopper.spec import rows_in_order
from quantrt.kernels.jit import boxes, fragments, ring
from quantrt.kernels.phases.spec import Phases, phases_of
from quantrt.regions.expression import IDENTITY
from quantrt.runtime.cuda.runners.phased_conv2d import _in_order, sums_of
from tests.kernels.convolutions.cases import Case
from tests.kernels.convolutions.test_conv_hopper import BLOCK_K, EMPTY, Stages, Windows
from tests.kernels.gluon_on_cpu import Descriptor, Pointer, Scalar, altered, run_program

TILE, STAGES, RUN = (64, 64), 3, 4

CASES = [
    (Case(C=16, N=64, size=(5, 7)), (2, 2), (1, 5, 7)),
    (Case(C=40, N=70, size=(9, 9), images=3), (2, 2), (1, 7, 9)),
    (Case(C=16, N=60, size=(4, 5), images=1), (3, 3), (1, 4, 5)),
    (Case(C=24, N=64, size=(6, 4), kernel=(5, 3), pads=(2, 1, 2, 1)), (2, 1), (2, 6, 4)),
    (Case(C=16, N=64, size=(4, 6), pads=(0, 0, 0, 0)), (2, 2), (1, 4, 6)),
    (Case(C=16, N=64, size=(6, 4), kernel=(3, 5), pads=(2, 2, 0, 2)), (2, 4), (1, 6, 4)),
    (Case(C=16, N=64, size=(6, 6), kernel=(5, 5), pads=(4, 4, 4, 4), dilations=(2, 2)), (4, 4), (1, 6, 6)),
]
IDS = [f"{case.id} x{repeats[0]}x{repeats[1]}" for case, repeats, _ in CASES]


def problem_of(case: Case, repeats: tuple[int, int], dtype: str = "float16") -> ConvProblem:
    return ConvProblem(
        case.images,
        *case.size,
        case.C,
        case.N,
        *case.kernel,
        case.strides,
        case.pads,
        case.dilations,
        dtype,
        IDENTITY,
        (),
        (dtype,),
        repeats=repeats,
    )


def phases_for(case: Case, repeats: tuple[int, int]) -> Phases:
    found = phases_of(problem_of(case, repeats))
    assert isinstance(found, Phases), found
    return found


def numbers(case: Case, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """x, channels last, and the weight: small whole numbers."""
    rng = np.random.default_rng(seed)
    x = rng.integers(-9, 9, (case.images, *case.size, case.C)).astype(np.float32)
    return x, rng.integers(-9, 9, (case.N, case.C, *case.kernel)).astype(np.float32)


def expected(case: Case, repeats: tuple[int, int], x: np.ndarray, w: np.ndarray) -> np.ndarray:
    """By torch, of the larger image."""
    large = torch.from_numpy(x.repeat(repeats[0], 1).repeat(repeats[1], 2)).movedim(-1, 1)
    top, left, bottom, right = case.pads
    padded = torch.nn.functional.pad(large, (left, right, top, bottom))
    y = torch.nn.functional.conv2d(padded, torch.from_numpy(w), dilation=case.dilations)
    return y.movedim(1, -1).numpy()


def by_kernel(case, repeats, box, x, w, *, seed, pitch=0, is_column=False, programs=2, module=triton_kernel):
    phases = phases_for(case, repeats)
    one = phases.problem
    shape = problem_of(case, repeats).output
    assert one.output == (case.images, shape[1] // repeats[0], shape[2] // repeats[1])
    y = np.full((*shape, pitch or case.N), EMPTY, np.float32)
    block_m, block_n = TILE
    taps = one.R if is_column else 1
    further = taps - 1
    taps_last = torch.from_numpy(np.ascontiguousarray(np.moveaxis(w, 1, -1)))
    weight = sums_of(taps_last, phases.axes).reshape(case.N, -1).numpy()
    flat = y.reshape(-1)
    arguments = (
        Windows(x, (box[0], box[1] + further, box[2]), (1, 1), block_m * (2 if is_column else 1)),
        Descriptor(rows_in_order(weight, RUN), (block_n, BLOCK_K)),
        (Pointer(flat),),
        (),
        *map(Scalar, one.output),
        case.N,
        one.R,
        one.S,
        case.C,
        (1, 1),
        one.pads[:2],
        (1, 1),
        (),
        (),
        (1,),
        (pitch,) if pitch else (),
        RUN,
        box,
        taps,
        False,
        block_m,
        block_n,
        BLOCK_K,
        STAGES,
        2,
        1,
        1,
        False,
        1,
        phases.repeats,
        phases.leads,
    )
    for program in reversed(range(programs)):
        run_program(
            module,
            "conv_hopper",
            arguments,
            seed=seed + 1000 * program,
            program=program,
            programs=programs,
            others=(fragments, ring, boxes),
            reads_once=not is_column,
            rows_from=Stages(block_m + further * box[2]).block,
            registers_of=lambda sums, operands, terms, program: (sums.astype(np.float32), *operands),
            evaluate=lambda program, r: (r[0],),
            stored=lambda program, output, results, element, is_finite: results[0],
        )
    found = flat.reshape(y.shape)
    assert (found[..., case.N :] == EMPTY).all()
    return found[..., : case.N]


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize(("case", "repeats", "box"), CASES, ids=IDS)
def test_every_element_is_that_of_the_larger_image(case, repeats, box, seed):
    x, w = numbers(case, seed)
    found = by_kernel(case, repeats, box, x, w, seed=seed)
    np.testing.assert_array_equal(found, expected(case, repeats, x, w))


def test_columns_of_windows_and_gaps_between_pixels():
    case = Case(C=24, N=64, size=(9, 11), images=2)
    x, w = numbers(case, 3)
    found = by_kernel(case, (2, 2), (1, 8, 8), x, w, seed=3, is_column=True, pitch=96, programs=3)
    np.testing.assert_array_equal(found, expected(case, (2, 2), x, w))


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("(phase // PHASES[1] + LEADS[0]) // PHASES[0]", "phase // PHASES[1] // PHASES[0]"),
        ("phase * sizes[1] + ", ""),
    ],
)
def test_what_is_wrong_is_found(right, wrong, tmp_path):
    case, repeats, box = CASES[1]
    x, w = numbers(case, 0)
    found = by_kernel(case, repeats, box, x, w, seed=0, module=altered(triton_kernel, right, wrong, tmp_path))
    assert (found != expected(case, repeats, x, w)).any()


def test_windows_of_3x3_are_of_2x2():
    phases = phases_for(Case(C=16, N=8, size=(4, 4)), (2, 2))
    assert (phases.problem.R, phases.problem.S) == (2, 2)
    assert phases.problem.pads == (1, 1, 0, 0)
    for axis in phases.axes:
        assert (axis.lead, axis.places) == (1, ((0, 1, 1), (0, 0, 1)))
    assert phases.most_taps == 4
    weight = torch.arange(9, dtype=torch.int8).reshape(1, 3, 3, 1).expand(8, 3, 3, 16)
    found = sums_of(weight, phases.axes)
    assert found.shape == (8, 4, 2, 2, 16)
    assert found[0, :, :, :, 0].tolist() == [
        [[0, 1 + 2], [3 + 6, 4 + 5 + 7 + 8]],
        [[0 + 1, 2], [3 + 4 + 6 + 7, 5 + 8]],
        [[0 + 3, 1 + 2 + 4 + 5], [6, 7 + 8]],
        [[0 + 1 + 3 + 4, 2 + 5], [6 + 7, 8]],
    ]


def test_what_has_no_phases():
    plain = problem_of(Case(C=16, N=64, size=(4, 4)), (2, 2))
    for change, reason in (
        ({"repeats": (1, 1)}, "repeated pixels"),
        ({"strides": (2, 2)}, "repeated pixels"),
        ({"pads": (1, 1, 0, 0)}, "different sizes"),
        ({"R": 2, "S": 2, "pads": (1, 1, 1, 1), "dilations": (2, 2)}, "no tap"),
        ({"R": 1, "S": 1, "pads": (0, 0, 0, 0)}, "no tap"),
    ):
        assert reason in phases_of(replace(plain, **change))


def test_rows_are_in_the_order_of_the_kernel():
    rows = np.random.default_rng(0).standard_normal((70, 5)).astype(np.float32)
    for run in (4, 8, 16):
        got = _in_order(torch.from_numpy(rows), run).numpy()
        np.testing.assert_array_equal(got, rows_in_order(rows, run))
