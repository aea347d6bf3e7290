# SPDX-License-Identifier: Apache-2.0
"""The copy of images with borders, compiled for GPUs that are not here."""

from pathlib import Path

import pytest

from quantrt.kernels.borders.spec import inner_problem, kernel_of
from quantrt.kernels.conv2d.spec import ConvProblem
from tests.conv_layers import layer
from tests.kernels.convolutions.test_conv2d_compiled import CAPABILITIES, instructions


def problem(C: int, pad_code: int = -128, pads: tuple[int, int, int, int] = (1, 1, 1, 1)) -> ConvProblem:
    return layer(14, C, C, images=1, pads=pads, outputs=("float32",), pad_code=pad_code)


@pytest.mark.parametrize("channels", [64, 1024])
def test_sixteen_codes_are_copied_at_a_time_without_spills(compiled_all, channels: int, tmp_path: Path):
    (kernel,) = compiled_all([kernel_of(problem(channels))], CAPABILITIES)
    assert kernel.spills == 0
    for capability in CAPABILITIES:
        used = instructions(kernel.cubins[capability], tmp_path)
        assert any(name.startswith("LDG") and "128" in name for name in used), used


def test_borders_are_added_where_padding_is_of_another_code_than_0():
    found = inner_problem(problem(64, pads=(0, 1, 2, 3)))
    assert found is not None
    assert (found.H, found.W, found.pads, found.pad_code) == (16, 18, (0, 0, 0, 0), 0)
    assert found.pixels == problem(64, pads=(0, 1, 2, 3)).pixels
    for other in (
        problem(64, pad_code=0),
        problem(64, pads=(0, 0, 0, 0)),
        problem(4),
        problem(64, pads=(-1, 1, 1, 1)),
    ):
        assert inner_problem(other) is None
