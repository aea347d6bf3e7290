"""Tuning on the CPU, with tactics that are right, wrong or broken by what they compute."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
import torch

from quantrt.errors import DeviceError, InternalError
from quantrt.gpu import gpu_named
from quantrt.kernels.kernel import KernelSpec
from quantrt.regions.formula_expression import constant_names
from quantrt.regions.formula_json import to_json
from quantrt.tactics.cuda.tactic import Constant, Draft, Rejected, Tactic, Workload
from quantrt.tactics.cuda.timing import trial
from quantrt.tactics.cuda.timing.timing import Timing
from quantrt.tactics.cuda.timing.timing_cache import TimingCache, add_timings, load_timing_cache
from quantrt.tactics.cuda.tuning.choices import Choices
from quantrt.tactics.cuda.tuning.tune import TuneOptions, tune
from tests.unit.tactics.cuda.workload_samples import int8_gemm, scaled_rows

GPU = gpu_named("H200")
CPU = torch.device("cpu")
HERE = {"gpu": "none"}
KERNEL = KernelSpec("no_such_family", "kernel", (), frozenset(), ())


def formula_tactic(
    workload: Workload, name: str = "reference", source: str = "torch", computes: Workload | None = None
) -> Tactic:
    """A tactic that computes `computes`, by default what it should."""
    formula = (computes or workload).formula
    arrays = {name: workload.constants[name] for name in constant_names(formula)}
    if workload.weight is not None:
        arrays = {"": workload.weight, **arrays}
    draft = Draft(
        "formula",
        tuple(f"in{n}" for n in range(len(workload.inputs))),
        tuple(f"out{n}" for n in range(len(workload.outputs))),
        {"formula": to_json(formula), "outputs": list(workload.outputs)},
        tuple(Constant(name, lambda array=array: array) for name, array in arrays.items()),
    )
    return Tactic(source, name, (draft,))


def right(workload: Workload, name: str = "right", source: str = "triton") -> Tactic:
    return formula_tactic(workload, name, source)


def wrong(workload: Workload, name: str = "wrong") -> Tactic:
    return formula_tactic(workload, name, "triton", scaled_rows(scale=2.1))


def broken(name: str = "broken") -> Tactic:
    return Tactic("triton", name, (Draft("no_such_runner", ("in0",), ("out0",)),))


def tune_here(
    workloads: Sequence[Workload],
    tactics: Sequence[Sequence[Tactic | Rejected]],
    cache: TimingCache | None = None,
    **options: object,
) -> Choices:
    return tune(
        workloads,
        {workload.region: row for workload, row in zip(workloads, tactics, strict=True)},
        gpu=GPU,
        device=CPU,
        cache=cache or TimingCache(HERE),
        options=TuneOptions(**options),
    )


def reasons(choices: Choices) -> dict[str, str]:
    (table,) = choices.candidates.values()
    return {row.name: row.reason for row in table}


@pytest.mark.parametrize("workload", [scaled_rows(), int8_gemm()], ids=["rows", "gemm"])
def test_a_right_tactic_is_timed_and_taken_before_the_reference(workload: Workload):
    choices = tune_here([workload], [[right(workload), formula_tactic(workload)]])
    choice = choices.by_region[workload.region]
    assert choice.tactic.name == "right"
    assert choice.origin == "timed"
    assert choice.median_us > 0
    assert choices.total_us == choice.median_us
    assert choices.timing_s > 0


def test_wrong_and_broken_tactics_are_rejected_with_reasons(caplog: pytest.LogCaptureFixture):
    work = scaled_rows()
    rejected = Rejected("cudnn", "never", "no such thing")
    choices = tune_here(
        [work], [[wrong(work), broken(), rejected, right(work), formula_tactic(work)]], level=5
    )
    assert choices.tactics["scale"].name == "right"
    found = reasons(choices)
    assert "differs from the reference in" in found["wrong"]
    assert "failed: ModelError: region 'scale' needs a runner" in found["broken"]
    assert found["never"] == "no such thing"
    assert found["right"] == ""
    assert "tactic 'broken' of region 'scale' failed" in caplog.text


def test_what_is_not_right_is_never_timed(monkeypatch: pytest.MonkeyPatch):
    """A wrong tactic, even the fastest of all, is no candidate of the clock's."""
    clocked: list[str] = []

    def measure(runs, **options):
        clocked.extend(runs)
        return own_measure(runs, **options)

    own_measure = trial.measure
    monkeypatch.setattr(trial, "measure", measure)
    work = scaled_rows()
    tactics = [wrong(work), right(work, "one"), broken(), wrong(work, "wrong too"), right(work, "two")]
    choices = tune_here([work], [[*tactics, formula_tactic(work)]], level=5)
    assert clocked == ["one", "two"]
    assert not any(
        isinstance(choices.cache.entries[choices.by_region["scale"].key].tactics[name], Timing)
        for name in ("wrong", "wrong too", "broken")
    )
    clocked.clear()
    again = tune_here([work], [[*tactics, formula_tactic(work)]], choices.cache, level=5)
    assert clocked == [] and again.timing_s == 0.0


def test_the_reference_is_timed_when_nothing_else_is_right():
    work = scaled_rows()
    choices = tune_here([work], [[wrong(work), formula_tactic(work)]])
    choice = choices.by_region["scale"]
    assert (choice.tactic.name, choice.origin) == ("reference", "timed")
    (note,) = [note for note in choices.notes if "reference" in note]
    assert "region 'scale' runs on the reference, slowly: " in note


def test_the_reference_alone_is_taken_without_a_trial():
    work = scaled_rows()
    choices = tune_here([work], [[formula_tactic(work)]])
    choice = choices.by_region["scale"]
    assert (choice.tactic.name, choice.origin, choice.median_us) == ("reference", "untimed", None)
    assert not any("reference" in note for note in choices.notes)


def test_a_workload_without_a_reference_is_an_error():
    work = scaled_rows()
    with pytest.raises(InternalError, match="no reference"):
        tune_here([work], [[right(work)]])


def test_workloads_that_do_the_same_are_tried_once():
    works = [scaled_rows("a"), scaled_rows("b", scale=3.0), scaled_rows("c", rows=8)]
    tried: list[str] = []

    def samples(workload: Workload, device: torch.device) -> list[torch.Tensor]:
        tried.append(workload.region)
        return [torch.ones(workload.inputs[0].shape)]

    tactics = {work.region: [right(work), formula_tactic(work)] for work in works}
    choices = tune(works, tactics, gpu=GPU, device=CPU, cache=TimingCache(HERE), samples=samples)
    assert tried == ["a", "c"]
    assert choices.by_region["a"].key == choices.by_region["b"].key != choices.by_region["c"].key
    assert choices.tactics["b"] == tactics["b"][0]
    assert choices.tactics["b"] != tactics["a"][0]


def test_weights_of_another_size_are_other_work():
    works = [int8_gemm("a", N=33), int8_gemm("b", N=34)]
    choices = tune_here(works, [[right(work), formula_tactic(work)] for work in works])
    assert choices.by_region["a"].key != choices.by_region["b"].key


def test_kernels_that_differ_are_other_work():
    works = [scaled_rows("a"), scaled_rows("b")]
    with_kernel = Tactic("triton", "right", (replace(right(works[1]).drafts[0], kernels=(KERNEL,)),))
    choices = tune(
        works,
        {"a": [right(works[0]), formula_tactic(works[0])], "b": [with_kernel, formula_tactic(works[1])]},
        gpu=GPU,
        device=None,
        cache=TimingCache(HERE),
    )
    assert choices.by_region["a"].key != choices.by_region["b"].key


def test_the_same_cache_gives_the_same_choices_and_bytes(tmp_path):
    work = scaled_rows()
    tactics = [right(work, "one"), wrong(work), right(work, "two"), formula_tactic(work)]
    first = tune_here([work], [tactics])
    add_timings(first.cache, tmp_path / "first.json")
    again = tune_here([work], [tactics], load_timing_cache(tmp_path / "first.json", HERE))
    add_timings(again.cache, tmp_path / "again.json")
    assert again.tactics == first.tactics
    assert again.by_region["scale"].origin == "cached"
    assert again.by_region["scale"].median_us == first.by_region["scale"].median_us
    assert (tmp_path / "first.json").read_bytes() == (tmp_path / "again.json").read_bytes()


def test_what_the_cache_says_is_believed_and_only_the_rest_is_tried():
    work = scaled_rows()
    tactics = [right(work, "one"), right(work, "two"), formula_tactic(work)]
    key = tune_here([work], [tactics]).by_region["scale"].key
    fast = Timing(1e-3, 1e-3, 1e-3, 30)
    for known, chosen in (({"two": fast}, "two"), ({"two": "differs"}, "one"), ({"one": fast}, "one")):
        entry = replace(tune_here([work], [tactics]).cache.entries[key], tactics=known)
        choices = tune_here([work], [tactics], TimingCache(HERE, {key: entry}))
        assert choices.tactics["scale"].name == chosen
        assert set(choices.cache.entries[key].tactics) == {"one", "two"}


@pytest.mark.parametrize(("gain_ratio", "name"), [(1.005, "plain"), (1.02, "searched")])
def test_what_searches_when_it_is_opened_has_to_be_faster_by_so_much(gain_ratio: float, name: str):
    work = scaled_rows()
    searched = replace(right(work, "searched"), handicap=1.01)
    tactics = [searched, right(work, "plain"), formula_tactic(work)]
    (key, entry) = next(iter(tune_here([work], [tactics]).cache.entries.items()))
    times_us = {"searched": 100.0, "plain": 100.0 * gain_ratio}
    known = {tactic: Timing(time_us, time_us, time_us, 30) for tactic, time_us in times_us.items()}
    cache = TimingCache(HERE, {key: replace(entry, tactics=known)})
    choice = tune_here([work], [tactics], cache).by_region["scale"]
    assert (choice.tactic.name, choice.median_us) == (name, times_us[name])


def test_what_was_rejected_stays_in_the_cache_when_nothing_is_right():
    work = scaled_rows()
    tactics = [wrong(work), formula_tactic(work)]
    first = tune_here([work], [tactics])
    again = tune_here([work], [tactics], first.cache)
    assert again.by_region["scale"].origin == "cached"
    assert again.by_region["scale"].median_us == first.by_region["scale"].median_us
    assert reasons(again) == reasons(first)


def test_level_zero_takes_the_first_right_tactic_untimed():
    work = scaled_rows()
    tactics = [wrong(work), right(work, "one"), right(work, "two"), formula_tactic(work)]
    choices = tune_here([work], [tactics], level=0)
    choice = choices.by_region["scale"]
    assert (choice.tactic.name, choice.origin, choice.median_us) == ("one", "untimed", None)
    assert "level 0" in reasons(choices)["two"]
    assert not choices.cache.entries[choice.key].tactics.get("one")


def test_a_spent_budget_leaves_workloads_checked_but_untimed():
    work = scaled_rows()
    tactics = [wrong(work), right(work, "one"), right(work, "two"), formula_tactic(work)]
    choices = tune_here([work], [tactics], budget_s=0.0)
    assert choices.by_region["scale"].tactic.name == "one"
    assert choices.by_region["scale"].median_us is None
    assert "1 of 1 workloads were not timed" in choices.notes[0]


def test_sources_and_workspace_are_limits():
    work = scaled_rows()
    large = replace(right(work, "large"), workspace_bytes=1001)
    fitting = replace(right(work, "fitting"), workspace_bytes=1000)
    excluded = right(work, "excluded", source="cudnn")
    choices = tune_here(
        [work],
        [[large, excluded, fitting, formula_tactic(work)]],
        workspace_limit_bytes=1000,
        excluded_sources=("cudnn",),
    )
    assert choices.tactics["scale"].name == "fitting"
    assert "1001 bytes of workspace, more than the 1000" in reasons(choices)["large"]
    assert reasons(choices)["excluded"] == "tactic source 'cudnn' is excluded"


def test_excluding_torch_leaves_the_reference():
    work = scaled_rows()
    choices = tune_here([work], [[formula_tactic(work)]], excluded_sources=("torch",))
    assert choices.tactics["scale"].name == "reference"


@pytest.mark.parametrize("is_told_by_runner", [False, True])
def test_short_memory_rejects_a_tactic_but_not_for_ever(
    monkeypatch: pytest.MonkeyPatch, is_told_by_runner: bool
):
    work = scaled_rows()
    hungry = Tactic("triton", "hungry", (replace(right(work).drafts[0], options={"formula": {}}),))
    from quantrt.runtime.cuda.runners import formula

    opened = formula.open_runner

    def open_runner(step, assets):
        if step.options["formula"] == {}:
            short = torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB")
            if is_told_by_runner:
                raise DeviceError("not enough memory for the product") from short
            raise short
        return opened(step, assets)

    monkeypatch.setattr(formula, "open_runner", open_runner)
    choices = tune_here([work], [[hungry, right(work), formula_tactic(work)]])
    assert choices.tactics["scale"].name == "right"
    assert "out of device memory" in reasons(choices)["hungry"]
    assert set(choices.cache.entries[choices.by_region["scale"].key].tactics) == {"right"}


def test_a_device_that_is_not_here_gets_estimates():
    work = int8_gemm()
    tactics = {"gemm": [right(work, "one"), formula_tactic(work)]}
    choices = tune([work], tactics, gpu=GPU, device=None, cache=TimingCache(HERE))
    choice = choices.by_region["gemm"]
    assert choice.origin == "estimated"
    assert choice.median_us > 0
    assert choices.notes == ("not timed on the device: H200 is not here",)
    assert not choices.cache.entries[choice.key].tactics


def test_what_cannot_be_compiled_is_not_chosen():
    work = scaled_rows()
    with_kernel = Tactic("triton", "no kernel", (replace(right(work).drafts[0], kernels=(KERNEL,)),))
    tactics = {"scale": [with_kernel, right(work), formula_tactic(work)]}
    choices = tune([work], tactics, gpu=GPU, device=None, cache=TimingCache(HERE))
    assert choices.tactics["scale"].name == "right"
    assert "cannot be compiled: sm_90: there is no kernel family" in reasons(choices)["no kernel"]
    assert choices.compile_s > 0


def test_tactics_of_one_name_are_an_error():
    work = scaled_rows()
    with pytest.raises(InternalError, match="not told apart"):
        tune_here([work], [[right(work), right(work), formula_tactic(work)]])


def test_progress_is_told():
    told: list[tuple[str, int, int]] = []
    works = [scaled_rows("a"), scaled_rows("b", rows=8)]
    tactics = {work.region: [right(work), formula_tactic(work)] for work in works}
    tune(
        works,
        tactics,
        gpu=GPU,
        device=CPU,
        cache=TimingCache(HERE),
        on_progress=lambda *row: told.append(row),
    )
    assert told == [("time", 1, 2), ("time", 2, 2)]


def test_nothing_to_tune():
    assert tune_here([], []).by_region == {}


def test_empty_tensors_are_tuned():
    work = scaled_rows(rows=0)
    assert tune_here([work], [[right(work), formula_tactic(work)]]).tactics["scale"].name == "right"


def test_random_inputs_are_codes_and_always_the_same():
    from quantrt.tactics.cuda.timing.sample_inputs import random_inputs

    work = int8_gemm(M=129, K=300)
    (one,), (two,) = random_inputs(work, CPU), random_inputs(work, CPU)
    assert torch.equal(one, two)
    assert (int(one.min()), int(one.max())) == (-128, 127)
    transposed = replace(work, inputs=(replace(work.inputs[0], strides=(1, 129)),))
    (turned,) = random_inputs(transposed, CPU)
    assert turned.shape == (129, 300)
    assert turned.stride() == (1, 129)
    assert len(np.unique(turned.numpy())) == 256
