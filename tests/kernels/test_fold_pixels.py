# SPDX-License-Identifier: Apache-2.0
"""First layers with strides: pixels folded into channels by the kernel in Triton's interpreter."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from quantrt.gpu import gpu_named
from quantrt.kernels.compile_all import CompileFailure, compile_all
from quantrt.kernels.conv_hopper import spec as conv_hopper
from quantrt.kernels.conv_hopper.tiles import configs
from quantrt.kernels.fold_pixels.spec import BLOCK, folding_of, kernel_of
from quantrt.runtime.cuda.launcher import InterpreterLauncher
from tests.kernels.test_conv2d_compiled import problem

H200 = gpu_named("H200")
STEM = replace(problem("int8", C=3, taps=7), images=2, H=21, W=30, N=16, strides=(2, 2), pads=(3, 3, 3, 3))


@pytest.mark.parametrize("is_interleaved", [True, False])
@pytest.mark.parametrize(
    "stem",
    [
        STEM,
        replace(STEM, R=3, S=3, pads=(1, 1, 1, 1), H=20, W=33),
        replace(STEM, R=3, S=5, pads=(0, 1, 1, 2), C=4),
        replace(STEM, pad_code=-7),
        replace(STEM, dtype="float16", outputs=("float16",)),
    ],
    ids=["7x7", "3x3", "3x5", "borders", "halves"],
)
def test_the_convolution_of_folded_pixels_is_that_of_the_pixels(stem, is_interleaved):
    rng = np.random.default_rng(0)
    dtype = getattr(torch, stem.dtype)
    shape = (stem.images, stem.C, stem.H, stem.W)
    x = torch.from_numpy(rng.integers(-128, 128, shape)).to(dtype)
    if is_interleaved:
        x = x.contiguous(memory_format=torch.channels_last)
    weight = rng.integers(-127, 128, (stem.N, stem.C, stem.R, stem.S)).astype(np.float32)
    folding = folding_of(stem)
    folded = folding.problem
    images, P, Q = stem.output
    assert folded.output == (images, P, Q)
    U, V, width = P + folded.R - 1, Q + folding.taps - 1, folding.width
    y = torch.full((images, U, V, width), 99, dtype=dtype)
    assert y.numel() * y.element_size() == folding.size_bytes
    M = images * U * V
    launch = InterpreterLauncher(kernel_of(stem, folding))
    launch((-(-M // BLOCK), 1, 1), [x, y, M, U, V, stem.H, stem.W, *x.stride()])

    windows = y.as_strided((images, U, Q, folded.C), (U * V * width, V * width, width, 1)).double()
    taps = folding.weight_of(weight).reshape(stem.N, folded.R, 1, folded.C)
    found = torch.nn.functional.conv2d(
        windows.permute(0, 3, 1, 2), torch.from_numpy(taps).double().permute(0, 3, 1, 2)
    )
    top, left, bottom, right = stem.pads
    padded = torch.nn.functional.pad(x.double(), (left, right, top, bottom), value=stem.pad_code)
    want = torch.nn.functional.conv2d(padded, torch.from_numpy(weight).double(), stride=2)
    torch.testing.assert_close(found, want, rtol=0, atol=0)


def test_what_is_not_folded():
    assert folding_of(replace(STEM, strides=(1, 1))) is None
    assert folding_of(replace(STEM, strides=(2, 1))) is None
    assert folding_of(replace(STEM, C=16)) is None
    assert folding_of(replace(STEM, dilations=(2, 2))) is None
    assert folding_of(replace(STEM, R=2, S=2, pads=(0,) * 4)) is None  # squares that do not overlap


def test_machine_code():
    stem = replace(STEM, images=32, H=224, W=224, N=64)
    folding = folding_of(stem)
    assert folding.problem.C == 64 and folding.problem.R == 4
    tile = next(tile for tile in configs(folding.problem, H200) if tile.is_column)
    specs = [conv_hopper.kernel_of(folding.problem, tile), kernel_of(stem, folding)]
    found = compile_all(specs, (90,), workers=2)
    for result in found.values():
        assert not isinstance(result, CompileFailure), result.reason
        assert result.spills == 0
