# SPDX-License-Identifier: Apache-2.0
"""What the runner of phases hands to its kernel, with a launcher that computes every phase."""

import types
from dataclasses import replace

import numpy as np
import pytest
import torch

from quantrt.gpu import gpu_named
from quantrt.kernels.gemm_hopper.spec import rows_in_order
from quantrt.plan.program import Step
from quantrt.runtime.cuda.runner import Assets
from quantrt.runtime.cuda.runners import phased_conv2d
from quantrt.tactics.cuda.candidates import list_tactics
from quantrt.tactics.cuda.tactic import Tactic
from tests.kernels.convolutions.cases import (
    Case,
    channels_last,
    float_problem,
    integer_problem,
    with_epilogue,
)
from tests.kernels.convolutions.resized import expected, resized
from tests.unit.runtime.cuda.runners.test_conv_hopper import EPILOGUE, allocate

CPU = torch.device("cpu")
PROGRAMS = 5


class Launcher:
    """Every phase as a convolution of its own, in its lines and columns of the output."""

    def __init__(self, spec):
        self.spec, self.grids, self.windows = spec, [], []

    def __call__(self, grid, arguments):
        windows, w, y, scale, residual, images, P, Q = arguments
        fixed = dict(self.spec.constants)
        (lines, columns), (R, S) = fixed["PHASES"], (fixed["R"], fixed["S"])
        assert (images, P * lines, Q * columns) == (len(y), *y.shape[2:])
        order = rows_in_order(np.arange(1, len(w) + 1)[:, None], fixed["RUN"])[: len(w), 0]
        natural = torch.empty_like(w)
        natural[torch.from_numpy(order - 1)] = w
        kernels = natural[: fixed["N"]].reshape(fixed["N"], lines, columns, R, S, fixed["C"]).float()
        x = torch.nn.functional.pad(windows.tensor.float().movedim(-1, 1), (9, 9, 9, 9))
        sums = torch.empty(y.shape)
        for i in range(lines):
            for j in range(columns):
                top = 9 - fixed["PADS"][0] + (i + fixed["LEADS"][0]) // lines
                left = 9 - fixed["PADS"][1] + (j + fixed["LEADS"][1]) // columns
                seen = x[:, :, top : top + P + R - 1, left : left + Q + S - 1]
                one = torch.nn.functional.conv2d(seen, kernels[:, i, j].movedim(-1, 1))
                sums[:, :, i::lines, j::columns] = one
        y.copy_(sums * scale[:, None, None] + residual)
        self.grids.append(grid)
        self.windows.append(windows)


@pytest.mark.parametrize("is_codes", [True, False], ids=["codes", "floats"])
@pytest.mark.parametrize(
    ("case", "repeats"),
    [
        (Case(C=32, N=72, size=(14, 14), images=70), (2, 2)),
        (Case(C=32, N=136, size=(9, 20), images=20, kernel=(5, 3), pads=(2, 1, 2, 1)), (3, 2)),
        (Case(C=32, N=136, size=(20, 20), images=20, pads=(0, 0, 0, 0)), (2, 2)),
    ],
    ids=lambda value: value.id if isinstance(value, Case) else None,
)
def test_phases(case, repeats, is_codes, monkeypatch, rng):
    facts = types.SimpleNamespace(multi_processor_count=PROGRAMS)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: facts)
    large = replace(case, size=(case.size[0] * repeats[0], case.size[1] * repeats[1]))
    residual = channels_last(torch.randint(-20, 20, large.shape).float())
    made = integer_problem(case, rng) if is_codes else float_problem(case, rng)
    problem = with_epilogue(made, rng, EPILOGUE, tensors=(residual,), outputs=("float32",))
    found = list_tactics(resized(problem, repeats), gpu_named("H200"))
    tactics = [x for x in found if isinstance(x, Tactic) and "windows" in x.name]
    assert tactics
    (want,) = expected(problem, repeats)
    for tactic in tactics:
        assert ("in halves" in tactic.name, len(tactic.drafts)) == ((True, 2) if is_codes else (False, 1))
        assert (tactic.workspace_bytes > 0) == is_codes
        x = problem.x.half() if is_codes else problem.x
        check(tactic, [x, residual], want, large)


def check(tactic, inputs, want, large):
    draft = tactic.drafts[-1]
    weights = {x.key: torch.tensor(x.make()) for x in draft.constants}
    launcher = Launcher(draft.kernels[0])
    step = Step(draft.runner, "region", draft.inputs, ("y",), draft.options, tuple(weights), ("k",))
    runner = phased_conv2d.open_runner(step, Assets(CPU, weights, {"k": launcher}))
    (y,) = runner.run(inputs, allocate)
    assert y.shape == large.shape
    # Of codes every sum is exact; of floats sums of weights are rounded to float16 once more.
    torch.testing.assert_close(y, want, rtol=2e-3, atol=2e-3)
    fixed = dict(draft.kernels[0].constants)
    (windows,) = launcher.windows
    assert windows.tensor.shape == (*inputs[0].shape[:1], *inputs[0].shape[2:], inputs[0].shape[1])
    count, lines, columns = fixed["BOX"]
    assert windows.block == (count, lines + fixed["TAPS"] - 1, columns, fixed["BLOCK_K"])
    assert windows.steps == (1, 1, 1, 1)
    assert launcher.grids == [(PROGRAMS * fixed["NEIGHBOURS"], 1, 1)]
