# SPDX-License-Identifier: Apache-2.0
"""What the runners of the kernel for compute capability 9.0 hand to it, with a launcher that multiplies."""

import types

import numpy as np
import pytest
import torch

from quantrt.kernels.gemm.spec import GemmProblem
from quantrt.kernels.gemm_hopper.spec import HopperTile, kernel_of, rows_in_order, run_of
from quantrt.plan.program import Step
from quantrt.regions.expression import Expression, Instruction, Operand
from quantrt.runtime.cuda.runner import Assets
from quantrt.runtime.cuda.runners import gemm_hopper, hopper_conv2d

CPU = torch.device("cpu")
PROGRAMS = 3
EPILOGUE = Expression(
    (Operand("accumulator"), Operand("constant", "scale"), Operand("tensor")),
    (Instruction("mul", (0, 1)), Instruction("add", (3, 2))),
    (4,),
    (False,),
)


class Launcher:
    """Computes what the kernel would; the rows of its weight are put back in their order."""

    def __init__(self, spec):
        self.spec, self.grids = spec, []

    def __call__(self, grid, arguments):
        x, w, y, scale, residual, M = arguments
        fixed = dict(self.spec.constants)
        N, run = fixed["N"], fixed["RUN"]
        order = rows_in_order(np.arange(1, w.shape[0] + 1)[:, None], run)[: w.shape[0], 0]
        natural = torch.empty_like(w)
        natural[torch.from_numpy(order - 1)] = w
        self.grids.append(grid)
        assert x.stride(1) == 1
        assert (x.shape[0], y.numel()) == (M, M * N)
        product = x.float() @ natural[:N].float().T * scale
        flat = y.permute(0, 2, 3, 1) if y.dim() == 4 else y
        other = residual.permute(0, 2, 3, 1) if y.dim() == 4 else residual
        flat.copy_((product + other.reshape(M, N).float()).reshape(flat.shape).to(y.dtype))


@pytest.fixture(autouse=True)
def few_multiprocessors(monkeypatch):
    facts = types.SimpleNamespace(multi_processor_count=PROGRAMS)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: facts)


def opened(module, options, N, K, seed):
    rng = np.random.default_rng(seed)
    problem = GemmProblem(500, N, K, "int8", 16, EPILOGUE, ("float32",), ("float32",))
    tile = HopperTile(64, 64, 2)
    weight = rng.integers(-20, 20, (N, K), dtype=np.int8)
    scale = torch.from_numpy(rng.integers(1, 9, N).astype(np.float32))
    weights = {"w": torch.from_numpy(rows_in_order(weight, run_of(problem, tile))), "scale": scale}
    launcher = Launcher(kernel_of(problem, tile))
    options = {"kinds": ["constant", "tensor"], "scalars": [], "outputs": ["float32"], **options}
    step = Step("runner", "region", ("x", "r"), ("y",), options, ("w", "scale"), ("k",))
    runner = module.open_runner(step, Assets(CPU, weights, {"k": launcher}))
    return runner, launcher, torch.from_numpy(weight), scale


def allocate(number, shape, dtype, *, channels_last=False):
    layout = torch.channels_last if channels_last else torch.contiguous_format
    return torch.empty(shape, dtype=dtype).contiguous(memory_format=layout)


@pytest.mark.parametrize("rows", [1, 70, 700])
def test_products(rows):
    runner, launcher, w, scale = opened(gemm_hopper, {}, 72, 48, rows)
    x = torch.randint(-20, 20, (2, rows, 48), dtype=torch.int8)
    residual = torch.randn(2, rows, 72).round()
    (y,) = runner.run([x, residual], allocate)
    assert torch.equal(y, x.float() @ w.float().T * scale + residual)
    tiles = -(-2 * rows // 64) * 2
    assert launcher.grids == [(min(tiles, PROGRAMS), 1, 1)]


def test_nothing_to_multiply():
    runner, launcher, *_ = opened(gemm_hopper, {}, 72, 48, 0)
    (y,) = runner.run([torch.empty(0, 48, dtype=torch.int8), torch.empty(0, 72)], allocate)
    assert y.shape == (0, 72)
    assert launcher.grids == []


@pytest.mark.parametrize("is_channels_last", [True, False])
def test_convolutions_of_single_pixels(is_channels_last):
    options = {
        "kernel": [1, 1],
        "strides": [1, 1],
        "dilations": [1, 1],
        "pads": [0, 0, 0, 0],
        "channels": [48, 72],
    }
    runner, launcher, w, scale = opened(hopper_conv2d, options, 72, 48, 4)
    layout = torch.channels_last if is_channels_last else torch.contiguous_format
    x = torch.randint(-20, 20, (3, 48, 5, 7), dtype=torch.int8).contiguous(memory_format=layout)
    residual = torch.randn(3, 72, 5, 7).round()
    (y,) = runner.run([x, residual], allocate)
    want = (
        torch.nn.functional.conv2d(x.float(), w.float()[:, :, None, None]) * scale[:, None, None] + residual
    )
    assert torch.equal(y, want)
    assert y.is_contiguous(memory_format=torch.channels_last)
    assert launcher.grids == [(PROGRAMS, 1, 1)]
