# SPDX-License-Identifier: Apache-2.0
"""Tensors side by side compiled for GPUs that are not here: whole vectors are moved, nothing spills."""

from pathlib import Path

import pytest

from quantrt.gpu import gpu_named
from quantrt.kernels.concat.spec import Run, is_aligned, kernel_of, word_bytes_of
from quantrt.kernels.concat.tiles import configs
from quantrt.kernels.kernel import KernelSpec
from tests.kernels.convolutions.test_conv2d_compiled import CAPABILITIES, instructions

H200 = gpu_named("H200")
PIXELS = 8 * 80 * 80


def spec_of(channels: tuple[int, ...], *, rows: int = PIXELS) -> KernelSpec:
    """Codes of as many channels side by side, in the first tile."""
    runs = [Run(rows, count, count) for count in channels]
    word = word_bytes_of(runs, 1)
    words = [run.in_words(1, word) for run in runs]
    return kernel_of(len(runs), word, configs(words, H200)[0], is_aligned=is_aligned(words))


def test_it_compiles_everywhere(compiled_all, tmp_path: Path):
    (kernel,) = compiled_all([spec_of((128, 128, 256))], CAPABILITIES)
    assert kernel.spills == 0 and kernel.registers > 0
    for capability in CAPABILITIES:
        loads = {x for x in instructions(kernel.cubins[capability], tmp_path) if x.startswith("LDG")}
        assert loads and all(x.startswith("LDG.E.128") for x in loads), loads


def test_channels_that_are_no_multiple_of_sixteen_words_move_as_whole_words(compiled_all, tmp_path: Path):
    (kernel,) = compiled_all([spec_of((64, 32, 8))], (90,))
    loads = {x for x in instructions(kernel.cubins[90], tmp_path) if x.startswith("LDG")}
    assert loads and all(x.startswith("LDG.E.64") for x in loads), loads


@pytest.mark.parametrize("rows", [1, 49, 400, PIXELS])
def test_tiles_fill_the_device_where_there_is_work_for_it(rows: int):
    runs = [Run(rows, 16, 16), Run(rows, 32, 32)]
    found = configs(runs, H200)
    assert 1 <= len(found) == len(set(found)) <= 4
    assert all(tile.columns == 32 for tile in found)
    programs = [-(-rows // tile.rows) for tile in found]
    assert programs[0] >= min(H200.multiprocessors, max(programs))
