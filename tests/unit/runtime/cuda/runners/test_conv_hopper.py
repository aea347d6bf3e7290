# SPDX-License-Identifier: Apache-2.0
"""What the runner of the convolution in boxes hands to its kernel, with a launcher that computes."""

import types

import numpy as np
import pytest
import torch

from quantrt.gpu import gpu_named
from quantrt.kernels.gemm_hopper.spec import rows_in_order
from quantrt.plan.program import Step
from quantrt.regions.expression import Expression, Instruction, Operand
from quantrt.runtime.cuda.runner import Assets
from quantrt.runtime.cuda.runners import conv_hopper
from quantrt.tactics.cuda.convolutions.conv2d import list_tactics
from quantrt.tactics.cuda.tactic import Tactic
from tests.kernels.convolutions.cases import Case, integer_problem, with_epilogue

CPU = torch.device("cpu")
PROGRAMS = 5
EPILOGUE = Expression(
    (Operand("accumulator"), Operand("constant", "scale"), Operand("tensor", "r", ("r", 0))),
    (Instruction("mul", (0, 1)), Instruction("add", (3, 2))),
    (4,),
    (False,),
)


class Launcher:
    """Computes what the kernel would; the rows of its weight are put back in their order."""

    def __init__(self, spec, case):
        self.spec, self.case, self.grids, self.windows = spec, case, [], []

    def __call__(self, grid, arguments):
        windows, w, y, scale, residual, images, P, Q = arguments
        fixed = dict(self.spec.constants)
        assert (images, P, Q) == (len(y), *y.shape[2:])
        order = rows_in_order(np.arange(1, len(w) + 1)[:, None], fixed["RUN"])[: len(w), 0]
        natural = torch.empty_like(w)
        natural[torch.from_numpy(order - 1)] = w
        kernel = natural[: fixed["N"]].reshape(fixed["N"], *self.case.kernel, fixed["C"])
        strides, top, left = fixed["STRIDES"], *fixed["PADS"]
        rows = (P - 1) * strides[0] + self.case.kernel[0]
        columns = (Q - 1) * strides[1] + self.case.kernel[1]
        x = torch.zeros(images, rows, columns, fixed["C"])
        there = windows.tensor[:, : rows - top, : columns - left]
        x[:, top : top + there.shape[1], left : left + there.shape[2]] = there
        sums = torch.nn.functional.conv2d(x.movedim(-1, 1), kernel.float().movedim(-1, 1), stride=strides)
        y.copy_(sums * scale[:, None, None] + residual)
        self.grids.append(grid)
        self.windows.append(windows)


def allocate(number, shape, dtype, *, channels_last=False):
    layout = torch.channels_last if channels_last else torch.contiguous_format
    return torch.empty(shape, dtype=dtype).contiguous(memory_format=layout)


@pytest.mark.parametrize(
    "case",
    [
        Case(C=32, N=72, size=(14, 14), images=70),
        Case(C=48, N=64, size=(15, 20), images=60, strides=(2, 2)),
        Case(C=16, N=64, size=(30, 20), images=60, kernel=(1, 1), strides=(2, 2), pads=(0,) * 4),
    ],
    ids=lambda case: case.id,
)
def test_windows(case, monkeypatch, rng):
    facts = types.SimpleNamespace(multi_processor_count=PROGRAMS)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: facts)
    residual = torch.randint(-20, 20, case.shape).float().contiguous(memory_format=torch.channels_last)
    problem = with_epilogue(integer_problem(case, rng), rng, EPILOGUE, tensors=(residual,))
    found = list_tactics(problem.workload(), gpu_named("H200"))
    tactics = [x for x in found if isinstance(x, Tactic) and "windows" in x.name]
    assert any("columns" in x.name for x in tactics) == (case.strides == (1, 1))
    for tactic in tactics:
        check(tactic, problem, case)


def check(tactic, problem, case):
    (draft,) = tactic.drafts
    weights = {x.key: torch.tensor(x.make()) for x in draft.constants}
    launcher = Launcher(draft.kernels[0], case)
    step = Step(draft.runner, "region", ("x", "r"), ("y",), draft.options, tuple(weights), ("k",))
    runner = conv_hopper.open_runner(step, Assets(CPU, weights, {"k": launcher}))
    (y,) = runner.run(problem.inputs, allocate)
    (want,) = problem.expected()
    torch.testing.assert_close(y, want, rtol=1e-6, atol=1e-3)
    fixed = dict(draft.kernels[0].constants)
    (windows,) = launcher.windows
    assert windows.tensor.shape == (case.images, *case.size, case.C)
    assert windows.tensor.stride(3) == 1
    count, lines, columns = fixed["BOX"]
    assert windows.block == (count, lines + fixed["TAPS"] - 1, columns, fixed["BLOCK_K"])
    assert windows.steps == (1, *case.strides, 1)
    assert launcher.grids == [(PROGRAMS * fixed["NEIGHBOURS"], 1, 1)]
