# SPDX-License-Identifier: Apache-2.0
"""Kernels for several targets: machine code joined, what does not run on all of them not taken."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from quantrt.errors import UsageError
from quantrt.gpu import gpu_named
from quantrt.kernels.compile_all import CompileFailure
from quantrt.kernels.kernel import CompiledKernel, KernelSpec
from quantrt.tactics.cuda.candidates import reference_tactic
from quantrt.tactics.cuda.tactic import Draft, Tactic
from quantrt.tactics.cuda.timing.timing_cache import TimingCache
from quantrt.tactics.cuda.tuning import targets, tune
from quantrt.tactics.cuda.tuning.targets import capability_of, compile_for_targets, with_least_shared_memory
from tests.unit.tactics.cuda.workload_samples import scaled_rows

H200 = gpu_named("H200")
KIB = 1024


def spec(name: str, **constants: object) -> KernelSpec:
    return KernelSpec("family", name, (), frozenset(), tuple(constants.items()))


def fake_compile_all(
    specs: Sequence[KernelSpec], capabilities: Sequence[int], **options: object
) -> dict[KernelSpec, CompiledKernel | CompileFailure]:
    """Machine code is the capability as text; constants tell what a kernel needs and where it fails."""
    found: dict[KernelSpec, CompiledKernel | CompileFailure] = {}
    for one in specs:
        constants = dict(one.constants)
        failing = [name for name in capabilities if name == constants.get("fails_for")]
        shared = {name: constants.get("shared", 0) for name in capabilities}
        cubins = {name: str(name).encode() for name in capabilities}
        pointers = constants.get("pointers", 0) if 90 not in capabilities else 0
        found[one] = (
            CompileFailure(one, f"sm_{failing[0]}: too large")
            if failing
            else CompiledKernel(one, one.function, cubins, shared, pointers)
        )
    return found


@pytest.fixture
def pretended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(targets, "compile_all", fake_compile_all)
    monkeypatch.setattr(tune, "compile_all", fake_compile_all)


def compiled(*specs: KernelSpec) -> dict[KernelSpec, CompiledKernel]:
    found = fake_compile_all(specs, [90])
    return {one: kernel for one, kernel in found.items() if isinstance(kernel, CompiledKernel)}


def test_machine_code_is_joined(pretended: None):
    one = spec("one", shared=99 * KIB)
    found = compile_for_targets(compiled(one), (80, 86, 90))[one]
    assert isinstance(found, CompiledKernel)
    assert found.cubins == {80: b"80", 86: b"86", 90: b"90"}
    assert found.shared_bytes == dict.fromkeys((80, 86, 90), 99 * KIB)
    assert compile_for_targets({one: found}, (86, 90)) == {one: found}


@pytest.mark.parametrize(
    ("constants", "reason"),
    [
        ({"shared": 99 * KIB + 1}, "sm_86: needs 101377 bytes of shared memory, a block has 101376 there"),
        ({"fails_for": 86}, "sm_86: too large"),
        ({"pointers": 2}, "sm_80, sm_86: its arguments are others than on the GPU it is for"),
    ],
)
def test_what_does_not_run_on_a_target_is_data(pretended: None, constants: dict[str, int], reason: str):
    odd, fine = spec("odd", **constants), spec("fine")
    found = compile_for_targets(compiled(odd, fine), (80, 86))
    assert found[odd] == CompileFailure(odd, reason)
    assert isinstance(found[fine], CompiledKernel)


def test_tactics_are_listed_for_the_least_shared_memory():
    assert with_least_shared_memory(H200, (80, 86)) == replace(H200, shared_memory_bytes=99 * KIB)
    assert with_least_shared_memory(H200, ()) == H200
    assert capability_of("sm_100") == 100
    with pytest.raises(UsageError, match="unknown target"):
        capability_of("sm_42")


def test_a_tactic_that_a_target_refuses_gives_way_to_the_next(pretended: None):
    workload = scaled_rows()
    tactics = [
        Tactic("triton", name, (Draft("rows", ("in0",), ("out0",), kernels=(kernel,)),))
        for name, kernel in (("first", spec("first", fails_for=86)), ("second", spec("second")))
    ]
    for wanted, name in (((86,), "second"), ((80,), "first"), ((), "first")):
        choices = tune.tune(
            [workload],
            {workload.region: [*tactics, reference_tactic(workload)]},
            gpu=H200,
            device=None,
            cache=TimingCache({"gpu": "none"}),
            options=tune.TuneOptions(targets=wanted),
        )
        assert choices.by_region[workload.region].tactic.name == name
        (kernel,) = choices.kernels.values()
        assert set(kernel.cubins) == {90, *wanted}
        assert ("1 kernels were not taken: they do not run on every target" in choices.notes) is (
            name == "second"
        )
        (entry,) = choices.cache.entries.values()
        assert "first" not in entry.tactics, "another build may be for other targets"


def test_where_no_kernel_runs_on_every_target_the_reference_does(pretended: None):
    workload = scaled_rows()
    kernel = spec("only", fails_for=80)
    only = Tactic("triton", "only", (Draft("rows", ("in0",), ("out0",), kernels=(kernel,)),))
    choices = tune.tune(
        [workload],
        {workload.region: [only, reference_tactic(workload)]},
        gpu=H200,
        device=None,
        options=tune.TuneOptions(targets=(80,)),
    )
    assert choices.by_region[workload.region].tactic.name == "reference"
    (table,) = choices.candidates.values()
    assert {row.name: row.reason for row in table}["only"] == "cannot be compiled: sm_80: too large"
