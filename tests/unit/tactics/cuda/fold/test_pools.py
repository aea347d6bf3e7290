# SPDX-License-Identifier: Apache-2.0
"""Which pools become part of the convolution in front of them, what is computed then, and when."""

from dataclasses import replace

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from quantrt.gpu import gpu_named  # noqa: E402
from quantrt.kernels.kernel import CompiledKernel  # noqa: E402
from quantrt.plan.program import Program  # noqa: E402
from quantrt.regions.formula_json import from_json, to_json  # noqa: E402
from quantrt.regions.region import Conv, PooledConv  # noqa: E402
from quantrt.runtime.cuda.executor import CudaExecutor, specs_of  # noqa: E402
from quantrt.tactics.cuda.candidates import list_tactics, reference_tactic  # noqa: E402
from quantrt.tactics.cuda.convolutions.pooled_conv import POOLED  # noqa: E402
from quantrt.tactics.cuda.fold.conversion import fold_conversions  # noqa: E402
from quantrt.tactics.cuda.fold.pairs import take_pairs  # noqa: E402
from quantrt.tactics.cuda.fold.pools import find_pooled  # noqa: E402
from quantrt.tactics.cuda.lower import _by_reference  # noqa: E402
from quantrt.tactics.cuda.tactic import Tactic  # noqa: E402
from quantrt.tactics.cuda.timing.check import off_by_one_ratio  # noqa: E402
from quantrt.tactics.cuda.timing.timing_cache import TimingCache  # noqa: E402
from quantrt.tactics.cuda.tuning.choices import Choice, Choices  # noqa: E402
from quantrt.tactics.cuda.tuning.estimate import work_of  # noqa: E402
from tests.nets import net, samples, weights  # noqa: E402
from tests.unit.tactics.cuda.fold.framed import framed_as  # noqa: E402

H200 = gpu_named("H200")
STEM = """net (float[2,3,{size},{size}] x) => ({outputs}) {{
  a = Conv<pads=[3,3,3,3], strides=[2,2]>(x, w, b)
  r = {act}(a)
  p = MaxPool<kernel_shape=[{window},{window}], strides=[2,2], pads={pads}>(r)
  y = Conv<pads=[1,1,1,1]>(p, w3, b)
  {more}
}}"""
PLAIN = {
    "size": 24,
    "act": "Relu",
    "window": 3,
    "pads": "[1,1,1,1]",
    "outputs": "float[2,64,6,6] y",
    "more": "",
}


def framed(precision="int8", *, gpu=H200, **options):
    text = STEM.format(**(PLAIN | options))
    size = (PLAIN | options)["size"]
    given = weights({"w": (64, 3, 7, 7), "w3": (64, 64, 3, 3), "b": (64,)})
    model = net(text, given, opset=21)
    x = samples(2, 3, size, size)
    frame, facts, _ = framed_as(precision, model, {"x": x}, gpu)
    return frame, facts, find_pooled(frame, facts, gpu), x


def run(frame, x) -> dict[str, np.ndarray]:
    program: Program = _by_reference(frame)
    return CudaExecutor(program, *specs_of(program), device="cpu").run({"x": x})


def choices_of(frame, pairs, *, apart_us=15.0, together_us=24.0, origin="timed"):
    times = {item.region: apart_us for item in frame.items if item.lowered is not None}
    times |= {pair.workload.region: together_us for pair in pairs}
    tactics = {pair.workload.region: list_tactics(pair.workload, H200)[0] for pair in pairs}
    other = Tactic("triton", "any", ())
    rows = {name: Choice(tactics.get(name, other), us, origin, name) for name, us in times.items()}
    return Choices(rows, {}, {}, TimingCache({}))


@pytest.mark.parametrize("precision", ["int8", "fp16"])
def test_both_as_one_give_what_they_give_apart(precision):
    frame, _, pairs, x = framed(precision)
    (pair,) = pairs
    fused, taken, mismatches = take_pairs(frame, choices_of(frame, pairs), pairs)
    assert not mismatches
    formulas = [item.lowered.formula for item in fused.items if item.lowered is not None]
    assert [type(formula) for formula in formulas].count(PooledConv) == 1
    assert len(fused.items) == len(frame.items) - 1
    assert set(taken.by_region) == {item.region for item in fused.items if item.lowered is not None}
    assert from_json(to_json(pair.workload.formula)) == pair.workload.formula
    want, got = run(frame, x), run(fused, x)
    np.testing.assert_array_equal(got["y"], want["y"])


def test_the_work_is_that_of_the_convolution_and_the_bytes_that_of_the_pool():
    _, _, (pair,), _ = framed()
    x, weight, y = 2 * 3 * 24 * 24, 64 * 3 * 49, 2 * 64 * 6 * 6
    assert work_of(pair.workload).products == 2 * 12 * 12 * weight
    assert work_of(pair.workload).moved_bytes == x + weight + y
    tactic = list_tactics(pair.workload, H200)[0]
    assert tactic.name == "pooled_conv pooled 1 lines s8"
    assert off_by_one_ratio(pair.workload, tactic) == 0.0


def test_the_conversion_in_front_is_part_of_the_kernel_that_folds():
    frame, facts, pairs, _ = framed()
    frame, choices, _ = take_pairs(frame, choices_of(frame, pairs), pairs)
    compiled = {}

    def compile_kernels(specs):
        compiled.update({spec: CompiledKernel(spec, spec.function, {}, {}) for spec in specs})
        return compiled

    fused, choices = fold_conversions(frame, choices, facts, compile_kernels)
    assert len(fused.items) == len(frame.items) - 1
    (first, *_) = fused.items
    (draft,) = choices.by_region[first.region].tactic.drafts
    assert (first.inputs[0], draft.runner) == ("x", POOLED)
    (spec,) = compiled
    fixed = dict(spec.constants)
    assert (fixed["TOP"], fixed["LEFT"]) == (3, 3 + 2 * 2), "two folded pixels of two pixels ahead of a line"


@pytest.mark.parametrize(
    ("times", "reason"),
    [
        (
            {"together_us": 25.0},
            "no faster on this GPU: 25.0 us together, 30.0 us apart, 5.0 of them a launch",
        ),
        ({"origin": "estimated"}, "not timed"),
    ],
)
def test_what_is_not_measured_faster_stays_apart(times, reason):
    frame, _, pairs, _ = framed()
    kept, taken, mismatches = take_pairs(frame, choices_of(frame, pairs, **times), pairs)
    assert kept.items == frame.items
    assert set(taken.by_region) == {item.region for item in frame.items if item.lowered is not None}
    assert [(row.pattern, row.reason) for row in mismatches] == [("pool behind a convolution", reason)]


def test_the_reference_is_no_kernel():
    frame, _, pairs, _ = framed()
    choices = choices_of(frame, pairs)
    slow = Choice(reference_tactic(pairs[0].workload), 1.0, "timed", "key")
    choices = replace(choices, by_region={**choices.by_region, pairs[0].workload.region: slow})
    assert "no kernel" in take_pairs(frame, choices, pairs)[2][0].reason


@pytest.mark.parametrize(
    "options",
    [
        {"window": 2, "pads": "[0,0,0,0]"},
        {"act": "Softplus"},
        {"size": 26},
        {"outputs": "float[2,64,6,6] y, float[2,64,12,12] r"},
        {"outputs": "float[2,64,6,6] y, float[2,64,12,12] s", "more": "s = Sigmoid(r)"},
        {"gpu": gpu_named("A100")},
    ],
    ids=["another pool", "an approximation", "an odd size", "an output", "another reader", "another GPU"],
)
def test_what_stays_two(options):
    frame, _, pairs, _ = framed(**options)
    assert any(isinstance(item.lowered.formula, Conv) for item in frame.items if item.lowered is not None)
    assert pairs == []
