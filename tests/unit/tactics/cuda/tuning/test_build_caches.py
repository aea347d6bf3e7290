# SPDX-License-Identifier: Apache-2.0
"""What a build leaves in files, and what the next one finds there."""

from dataclasses import replace
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from quantrt.config import CudaConfig  # noqa: E402
from quantrt.errors import DataError  # noqa: E402
from quantrt.gpu import gpu_named  # noqa: E402
from quantrt.kernels.kernel import CompiledKernel  # noqa: E402
from quantrt.tactics.cuda import lower  # noqa: E402
from quantrt.tactics.cuda.timing.timing import Timing  # noqa: E402
from quantrt.tactics.cuda.timing.timing_cache import Entry, TimingCache  # noqa: E402
from quantrt.tactics.cuda.tuning import tune  # noqa: E402
from quantrt.tactics.cuda.tuning.build_caches import BuildCaches  # noqa: E402
from quantrt.tactics.cuda.tuning.choices import Choices  # noqa: E402
from tests.nets import resnet, samples  # noqa: E402
from tests.unit.tactics.cuda.timing.test_code_cache import HERE, PLANS, kernel  # noqa: E402

GPU = torch.device("cuda", 0)
H200 = gpu_named("H200")


def caches(path: Path, device: torch.device | None = GPU, *targets: int) -> BuildCaches:
    return BuildCaches(str(path), HERE, H200, targets, device)


def choices(*names: str) -> Choices:
    made = [kernel(name, 90) for name in names]
    return Choices({}, {one.spec: one for one in made}, {}, TimingCache(HERE), plans=PLANS)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "timings.json"


def test_the_next_build_finds_the_code_of_all_choices(path: Path):
    first = caches(path)
    first.add(choices("gemm"))
    first.save()
    first.add(choices("rows"))
    first.save()
    assert caches(path).code == first.code
    assert len(first.code.kernels) == 2
    assert caches(path, GPU, 80).code.kernels == {}


def test_code_that_is_saved_is_not_written_again(path: Path):
    first = caches(path)
    first.add(choices("gemm"))
    first.save()
    beside = path.with_name(path.name + ".code")
    beside.unlink()
    first.save()
    assert path.exists()
    assert not beside.exists()


def test_code_that_does_not_fit_is_left_out(path: Path):
    first = caches(path)
    first.add(choices("gemm"))
    first.save()
    small = kernel("gemm", 90).shared_bytes[90] - 1
    found = BuildCaches(str(path), HERE, replace(H200, shared_memory_bytes=small), (), GPU)
    assert found.code.kernels == {}
    assert found.code.plans == PLANS


def timed(name: str) -> Choices:
    entry = Entry("Gemm", "", ("float16[1, 8]",), ("float16",), {"torch": Timing(2.0, 1.9, 2.1, 30)})
    return replace(choices(name), cache=TimingCache(HERE, {name: entry}), plans={name: PLANS["a"]})


def test_builds_that_run_at_once_keep_what_both_found(path: Path):
    one, other = caches(path), caches(path)
    for build, name in ((one, "gemm"), (other, "rows")):
        build.add(timed(name))
        build.save()
    found = caches(path)
    assert set(found.timings.entries) == {"gemm", "rows"}
    assert {spec.function for spec in found.code.kernels} == {"gemm", "rows"}
    assert set(found.code.plans) == {"gemm", "rows"}


def test_builds_on_two_gpus_that_share_a_cache_keep_what_both_found(path: Path):
    a100, there = gpu_named("A100"), {**HERE, "gpu": "NVIDIA Other"}
    one, other = caches(path), BuildCaches(str(path), there, a100, (), GPU)
    one.add(timed("gemm"))
    one.save()
    entries = {"rows": timed("rows").cache.entries["rows"]}
    made = kernel("gemm", 80)
    plans = {"gemm": replace(PLANS["a"], gpu="NVIDIA Other")}
    other.add(Choices({}, {made.spec: made}, {}, TimingCache(there, entries), plans=plans))
    other.save()
    found, elsewhere = caches(path), BuildCaches(str(path), there, a100, (), GPU)
    assert set(found.timings.entries) == {"gemm"} and found.code == one.code
    assert set(elsewhere.timings.entries) == {"rows"} and elsewhere.code == other.code


def test_damaged_code_is_made_anew(path: Path, caplog: pytest.LogCaptureFixture):
    beside = path.with_name(path.name + ".code")
    beside.write_bytes(b"x" * 100)
    build = caches(path)
    assert f"'{beside}' is damaged, not used, and made anew" in caplog.text
    build.add(timed("gemm"))
    build.save()
    assert caches(path).code == build.code


def test_a_file_that_is_no_timing_cache_is_an_error_and_stays(path: Path):
    build = caches(path)
    build.add(timed("gemm"))
    path.write_text("my notes")
    build.save()
    with pytest.raises(DataError, match="cannot read the timing cache") as caught:
        caches(path)
    assert caught.value.hint == "--timing-cache with another file", "it may be a model"
    assert path.read_text() == "my notes"


@pytest.mark.parametrize("device", [None, torch.device("cpu")])
def test_where_there_is_no_gpu_no_code_is_written(path: Path, device: torch.device | None):
    there = caches(path, device)
    there.add(choices("gemm"))
    there.save()
    assert path.exists() == (device is not None)
    assert list(path.parent.glob("*.code")) == []


def test_without_a_path_nothing_is_kept(tmp_path: Path):
    kept = BuildCaches(None, HERE, H200, (), GPU)
    kept.add(choices("gemm"))
    kept.save()
    assert list(tmp_path.iterdir()) == []


def test_code_of_what_was_chosen_and_not_taken_is_kept(monkeypatch: pytest.MonkeyPatch):
    """It is chosen again by the next build, before it is held against what is taken instead."""

    def compiled(specs, capabilities, **options):
        return {spec: CompiledKernel(spec, spec.function, {90: b"code"}, {90: 0}) for spec in specs}

    def nothing_taken(frame, choices, pairs):
        return frame, replace(choices, kernels={}), ()

    for module in (lower, tune):
        monkeypatch.setattr(module, "compile_all", compiled)
    monkeypatch.setattr(lower, "take_pairs", nothing_taken)
    x = samples(2, 3, 16, 16)
    lowering = lower.CudaLowering(resnet(), CudaConfig(), {"x": x}, gpu=H200, device=None)
    tuned = lowering._tuned(None, "fp16", {}, None)
    assert not tuned.choices.kernels
    assert lowering._caches.code.kernels
    lowering.close()
