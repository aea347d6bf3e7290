# SPDX-License-Identifier: Apache-2.0
"""First layers with strides: pixels folded into channels by the kernel in Triton's interpreter."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from quantrt.gpu import gpu_named
from quantrt.kernels.compile_all import CompileFailure
from quantrt.kernels.conv_hopper import spec as conv_hopper
from quantrt.kernels.conv_hopper.tiles import configs
from quantrt.kernels.fold_pixels.spec import BLOCK, folding_of, kernel_of, why_not_before
from quantrt.kernels.kernel import CompiledKernel
from quantrt.quantize.targets.cuda import CUDA
from quantrt.regions.expression import Operand
from quantrt.regions.partition import partition
from quantrt.runtime.cuda.device.launcher import InterpreterLauncher
from quantrt.tactics.cuda.candidates import list_tactics
from quantrt.tactics.cuda.convolutions.conv2d import FOLDED
from quantrt.tactics.cuda.fold.conversion import fold_conversions
from quantrt.tactics.cuda.forms.forms import choose_forms
from quantrt.tactics.cuda.program.frame import make_frame
from quantrt.tactics.cuda.tactic import Tactic, TensorFacts, dense_strides
from quantrt.tactics.cuda.timing.timing_cache import TimingCache
from quantrt.tactics.cuda.tuning.choices import Choice, Choices
from tests.kernels.convolutions.test_conv2d_compiled import problem
from tests.kernels.memory_bound.expressions import Builder, scalar
from tests.nets import net, quantized, samples, weights

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
        replace(STEM, R=3, S=3, pads=(1, 1, 1, 1), strides=(1, 1)),
        replace(STEM, dtype="float16", outputs=("float16",)),
    ],
    ids=["7x7", "3x3", "3x5", "borders", "no strides", "halves"],
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
    want = torch.nn.functional.conv2d(padded, torch.from_numpy(weight).double(), stride=stem.strides)
    torch.testing.assert_close(found, want, rtol=0, atol=0)


def test_codes_are_made_as_pixels_are_folded():
    rng = np.random.default_rng(1)
    shape = (STEM.images, STEM.C, STEM.H, STEM.W)
    x = torch.from_numpy(rng.standard_normal(shape).astype(np.float32))
    scale, zero = 0.031, -5.0
    stem = replace(STEM, pad_code=int(zero))
    b = Builder(Operand("tensor"), scalar(scale), scalar(zero))
    expression = b.build(b("quantize_at", 0, 1, 2))
    assert why_not_before(expression) is None
    folding = folding_of(stem)
    images, P, Q = stem.output
    U, V = P + folding.problem.R - 1, Q + folding.taps - 1
    codes = torch.clamp(torch.round(x.double() / np.float32(scale)) + zero, -128, 127).to(torch.int8)
    found, want = (torch.full((images, U, V, folding.width), 99, dtype=torch.int8) for _ in range(2))
    sizes = images * U * V, U, V, STEM.H, STEM.W, *x.stride()
    grid = (-(-sizes[0] // BLOCK), 1, 1)
    InterpreterLauncher(kernel_of(stem, folding))(grid, [codes, want, *sizes])
    spec = kernel_of(stem, folding, dtype="float32", before=expression)
    InterpreterLauncher(spec)(grid, [x, found, scale, zero, *sizes])
    torch.testing.assert_close(found, want, rtol=0, atol=0)


def test_a_conversion_is_part_of_the_first_layer():
    text = """net (float[2,3,64,64] x) => (float[2,64,32,32] y) {
      a = Conv<pads=[3,3,3,3], strides=[2,2]>(x, w, b)
      r = Relu(a)
      y = Conv<pads=[1,1,1,1]>(r, w3, b)
    }"""
    shapes = {"w": (64, 3, 7, 7), "w3": (64, 64, 3, 3), "b": (64,)}
    model = net(text, weights(shapes), opset=21)
    codes = quantized(model, CUDA, {"x": samples(2, 3, 64, 64)})
    forms = choose_forms(codes.graph.graph, partition(codes.graph), codes)
    frame = make_frame(codes.graph, partition(codes.graph), forms, codes, "float16")
    shapes = {"x": (32, 3, 224, 224), "r": (32, 64, 112, 112), "y": (32, 64, 112, 112)}
    facts = {}
    for item in frame.items:
        for buffer in (*item.inputs, *item.outputs):
            shape = shapes[buffer.partition("#")[0]]
            dtype = "float32" if buffer == "x" else "int8" if buffer.endswith("#int8") else "float16"
            facts[buffer] = TensorFacts(dtype, shape, dense_strides(shape, channels_last=buffer != "x"))
    chosen = {}
    for item in frame.items:
        workload = item.lowered.workload([facts[buffer] for buffer in item.inputs])
        listed = [row for row in list_tactics(workload, H200) if isinstance(row, Tactic)]
        folded = [row for row in listed if row.drafts[0].runner == FOLDED]
        chosen[item.region] = Choice((folded or listed)[0], 1.0, "timed", item.region)
    asked = []

    def compile_kernels(specs):
        asked.extend(specs)
        return {spec: CompiledKernel(spec, spec.function, {}, {}) for spec in specs}

    choices = Choices(chosen, {}, {}, TimingCache({}))
    fused, found = fold_conversions(frame, choices, facts, compile_kernels)
    assert [item.region for item in frame.items][0].startswith("convert")
    assert [item.region for item in fused.items] == [item.region for item in frame.items][1:]
    first = fused.items[0]
    assert first.inputs == ("x",)
    (draft,) = found.by_region[first.region].tactic.drafts
    assert draft.kernels[1:] == tuple(asked)
    assert dict(asked[0].signature)["x_ptr"] == "*fp32"
    scale, zero = forms.grid("x")
    assert draft.options["before"] == ([scale, zero] if zero else [scale])


def test_what_is_not_folded():
    assert folding_of(replace(STEM, strides=(1, 1), R=1, S=1, pads=(0,) * 4)) is None
    assert folding_of(replace(STEM, strides=(2, 1))) is None
    assert folding_of(replace(STEM, C=16)) is None
    assert folding_of(replace(STEM, dilations=(2, 2))) is None
    assert folding_of(replace(STEM, R=2, S=2, pads=(0,) * 4)) is None  # squares that do not overlap


def test_machine_code(compile_kernels):
    stem = replace(STEM, images=32, H=224, W=224, N=64)
    folding = folding_of(stem)
    assert folding.problem.C == 64 and folding.problem.R == 4
    tile = next(tile for tile in configs(folding.problem, H200) if tile.is_column)
    specs = [conv_hopper.kernel_of(folding.problem, tile), kernel_of(stem, folding)]
    found = compile_kernels(specs, (90,))
    for result in found.values():
        assert not isinstance(result, CompileFailure), result.reason
        assert result.spills == 0
