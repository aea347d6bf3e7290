# SPDX-License-Identifier: Apache-2.0
"""Which resizes become part of the convolution behind them, what is computed then, and when."""

from dataclasses import replace

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from quantrt.config import CudaConfig  # noqa: E402
from quantrt.gpu import gpu_named  # noqa: E402
from quantrt.plan.program import Place  # noqa: E402
from quantrt.regions.formula_json import from_json, to_json  # noqa: E402
from quantrt.regions.partition import partition  # noqa: E402
from quantrt.regions.region import Conv, Resize, ResizedConv  # noqa: E402
from quantrt.runtime.cuda.executor import CudaExecutor, specs_of  # noqa: E402
from quantrt.tactics.cuda.candidates import list_tactics, reference_tactic  # noqa: E402
from quantrt.tactics.cuda.fold.pairs import take_pairs  # noqa: E402
from quantrt.tactics.cuda.fold.resizes import find_resized  # noqa: E402
from quantrt.tactics.cuda.lower import CudaLowering, _by_reference  # noqa: E402
from quantrt.tactics.cuda.program_notes import program_notes  # noqa: E402
from quantrt.tactics.cuda.tactic import Tactic  # noqa: E402
from quantrt.tactics.cuda.timing.timing_cache import TimingCache  # noqa: E402
from quantrt.tactics.cuda.tuning.build_caches import BuildCaches  # noqa: E402
from quantrt.tactics.cuda.tuning.choices import Choice, Choices  # noqa: E402
from quantrt.tactics.cuda.tuning.estimate import work_of  # noqa: E402
from tests.nets import net, samples, weights  # noqa: E402
from tests.unit.tactics.cuda.fold.framed import framed_as  # noqa: E402

H200 = gpu_named("H200")
UP = """net (float[2,16,5,6] x) => ({outputs}) {{
  a = Conv<pads=[1,1,1,1]>(x, w, b)
  r = Resize<mode="{mode}", coordinate_transformation_mode="{coordinates}", nearest_mode="{nearest}">
      (a, , {scales})
  c = Conv<pads=[1,1,1,1], strides={strides}>(r, w, b)
  y = Relu(c)
  {more}
}}"""
PLAIN = {
    "outputs": "float[2,16,H,W] y",
    "mode": "nearest",
    "coordinates": "asymmetric",
    "nearest": "floor",
    "scales": "twice",
    "strides": "[1,1]",
    "more": "",
}
CONSTANTS = {
    "twice": np.array([1, 1, 2, 2], np.float32),
    "thrice": np.array([1, 1, 3, 2], np.float32),
    "half_more": np.array([1, 1, 1.5, 2], np.float32),
}
X = samples(2, 16, 5, 6)


def model_of(**options):
    text = UP.format(**(PLAIN | options))
    given = weights({"w": (16, 16, 3, 3), "b": (16,)})
    named = {name: array for name, array in CONSTANTS.items() if name in text}
    return net(text, {**given, **named}, opset=21)


def framed(precision="int8", *, gpu=H200, **options):
    frame, facts, regions = framed_as(precision, model_of(**options), {"x": X}, gpu)
    return frame, facts, find_resized(frame, facts, gpu), regions


def run(frame, x=X) -> dict[str, np.ndarray]:
    program = _by_reference(frame)
    return CudaExecutor(program, *specs_of(program), device="cpu").run({"x": x})


def choices_of(frame, pairs, *, apart_us=15.0, together_us=24.0, origin="timed"):
    times = {item.region: apart_us for item in frame.items if item.lowered is not None}
    times |= {pair.workload.region: together_us for pair in pairs}
    tactics = {pair.workload.region: list_tactics(pair.workload, H200)[-2] for pair in pairs}
    other = Tactic("triton", "any", ())
    rows = {name: Choice(tactics.get(name, other), us, origin, name) for name, us in times.items()}
    return Choices(rows, {}, {}, TimingCache({}))


@pytest.mark.parametrize("precision", ["int8", "fp16", "bf16"])
@pytest.mark.parametrize("scales", ["twice", "thrice"])
def test_both_as_one_give_what_they_give_apart(precision, scales):
    frame, _, pairs, _ = framed(precision, scales=scales)
    (pair,) = pairs
    fused, taken, mismatches = take_pairs(frame, choices_of(frame, pairs), pairs)
    assert not mismatches
    formulas = [type(item.lowered.formula) for item in fused.items if item.lowered is not None]
    assert formulas.count(ResizedConv) == 1
    assert Resize not in formulas
    assert len(fused.items) == len(frame.items) - 1
    assert set(taken.by_region) == {item.region for item in fused.items if item.lowered is not None}
    assert from_json(to_json(pair.workload.formula)) == pair.workload.formula
    other = samples(1, 16, 3, 4, seed=4)  # another batch and size than was traced
    for x in (X, other):
        np.testing.assert_array_equal(run(fused, x)["y"], run(frame, x)["y"])


def test_the_work_is_that_of_the_convolution_and_the_bytes_those_of_the_smaller_image():
    _, _, (pair,), _ = framed()
    weight = 16 * 16 * 9
    assert work_of(pair.workload).products == 2 * 10 * 12 * weight
    assert pair.workload.inputs[0].dtype == "int8"
    stored = 2 * 16 * 10 * 12 * np.dtype(pair.workload.outputs[0]).itemsize
    assert work_of(pair.workload).moved_bytes == 2 * 16 * 5 * 6 + weight + stored


def test_what_is_told_of_it():
    frame, facts, pairs, regions = framed()
    fused, taken, _ = take_pairs(frame, choices_of(frame, pairs), pairs)
    notes = program_notes(fused, regions, taken, facts, {})
    (row,) = (row for row in notes["regions"].values() if row["formula"] == "ResizedConv")
    nodes = pairs[0].workload.formula
    assert row["nodes"][:2] == [nodes.resize.x[0], nodes.convolution.x[0]]
    assert (row["product"], row["codes"]) == (nodes.convolution.x[0], "int8")
    assert row["attributes"]["resized"] == [2.0, 2.0]
    assert row["attributes"]["kernel"] == [3, 3]


@pytest.mark.parametrize(
    ("times", "reason"),
    [
        ({"together_us": 25.0}, "no faster on this GPU"),
        ({"origin": "estimated"}, "not timed"),
    ],
)
def test_what_is_not_measured_faster_stays_apart(times, reason):
    frame, _, pairs, _ = framed()
    kept, taken, (mismatch,) = take_pairs(frame, choices_of(frame, pairs, **times), pairs)
    assert kept.items == frame.items
    assert set(taken.by_region) == {item.region for item in frame.items if item.lowered is not None}
    assert mismatch.pattern == "resize in front of a convolution"
    assert reason in mismatch.reason


def test_the_reference_is_no_kernel():
    frame, _, pairs, _ = framed()
    choices = choices_of(frame, pairs)
    slow = Choice(reference_tactic(pairs[0].workload), 1.0, "timed", "key")
    choices = replace(choices, by_region={**choices.by_region, pairs[0].workload.region: slow})
    assert "no kernel" in take_pairs(frame, choices, pairs)[2][0].reason


def test_it_is_stored_between_the_channels_of_another():
    frame, facts, (pair,), _ = framed("fp16")
    (y,) = pair.fused.outputs
    there = replace(frame, places={y: Place(y, 0, 48)})
    (moved,) = find_resized(there, facts, H200)
    assert moved.workload.pitches == (48,)
    resized = {pair.first.outputs[0]: Place(pair.first.outputs[0], 0, 48)}
    assert find_resized(replace(frame, places=resized), facts, H200) == []


@pytest.mark.parametrize(
    "options",
    [
        {"mode": "linear", "coordinates": "half_pixel"},
        {"nearest": "ceil"},
        {"coordinates": "align_corners", "nearest": "round_prefer_floor"},
        {"scales": "half_more"},
        {"strides": "[2,2]"},
        {"outputs": "float[2,16,H,W] y, float[2,16,P,Q] r"},
        {"outputs": "float[2,16,H,W] y, float[2,16,P,Q] s", "more": "s = Sigmoid(r)"},
        {"precision": "fp32"},
    ],
    ids=["linear", "ceil", "corners", "no whole number", "strides", "an output", "another reader", "fp32"],
)
def test_what_stays_two(options):
    frame, _, pairs, _ = framed(**{"precision": "fp16"} | options)
    assert any(isinstance(item.lowered.formula, Conv) for item in frame.items if item.lowered is not None)
    assert pairs == []


@pytest.mark.parametrize("nearest", ["round_prefer_floor", "round_prefer_ceil"])
def test_half_pixels_that_read_the_same_are_taken_in(nearest):
    _, _, pairs, _ = framed("fp16", coordinates="half_pixel", nearest=nearest)
    assert len(pairs) == 1


def test_a_size_that_is_computed_stays_a_region_of_its_own():
    text = """net (float[N,16,H,W] x, float[4] scales) => (float[N,16,A,B] y) {
      r = Resize<mode="nearest", coordinate_transformation_mode="asymmetric", nearest_mode="floor">
          (x, , scales)
      y = Conv<pads=[1,1,1,1]>(r, w, b)
    }"""
    model = net(text, weights({"w": (16, 16, 3, 3), "b": (16,)}), opset=21)
    assert not any(isinstance(x.formula, Resize) for x in partition(model.graph).regions)


def test_what_is_kept_for_other_builds_has_the_code_of_both_ways(monkeypatch):
    kept = []
    monkeypatch.setattr(BuildCaches, "add", lambda caches, choices: kept.append(set(choices.by_region)))
    low = CudaLowering(model_of(), CudaConfig(), {"x": X}, gpu=H200, device=None)
    low.lower(None, "fp16")
    low.close()
    (fused,) = (name for name in kept[0] if name.endswith(", resized"))
    assert {fused.removesuffix(", resized"), fused} <= kept[0]
    assert fused not in kept[-1]
