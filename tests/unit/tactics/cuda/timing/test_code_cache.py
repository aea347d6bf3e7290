# SPDX-License-Identifier: Apache-2.0
"""Machine code and plans outlive a build, and are not taken where they are not what would be made here."""

from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("torch")

from quantrt.errors import DataError
from quantrt.kernels.kernel import CompiledKernel, KernelSpec
from quantrt.plan.cudnn_plan import CudnnPlan
from quantrt.tactics.cuda.timing.code_cache import CodeCache, add_code, load_code, path_beside

HERE = {"gpu": "NVIDIA Test", "triton": "3.6.0", "sources": "0123456789abcdef", "driver": "580.1"}
THERE = {**HERE, "gpu": "NVIDIA Other"}
PLANS = {
    "b": CudnnPlan(bytes(range(256)) * 9, 7, 91900, HERE["gpu"]),
    "a": CudnnPlan(b"", 0, 92000, HERE["gpu"]),
}


def kernel(name: str, *capabilities: int) -> CompiledKernel:
    spec = KernelSpec(name, name, (("x_ptr", "*fp16"), ("M", "i32")), frozenset({"x_ptr"}), (("N", 64),))
    cubins = {capability: f"{name} for {capability}".encode() for capability in capabilities}
    sizes = {capability: 100 + capability for capability in capabilities}
    return CompiledKernel(spec, f"{name}_symbol", cubins, sizes, 2, 40, 0, {"triton": "3.6.0"})


def code(*kernels: CompiledKernel) -> CodeCache:
    return CodeCache({one.spec: one for one in kernels}, PLANS)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return path_beside(str(tmp_path / "timings.json"))


def test_code_outlives_a_build(path: Path):
    assert load_code(path, HERE, {90}) == CodeCache()
    kept = code(kernel("gemm", 90), kernel("rows", 90))
    add_code(kept, path, HERE)
    assert load_code(path, HERE, {90}) == kept
    before = path.read_bytes()
    add_code(CodeCache(dict(reversed(kept.kernels.items())), dict(reversed(PLANS.items()))), path, HERE)
    assert path.read_bytes() == before


def test_code_of_other_sources_is_made_anew_and_plans_stay(path: Path):
    add_code(code(kernel("gemm", 90)), path, HERE)
    assert load_code(path, {**HERE, "driver": "600"}, {90}).kernels
    for changed in ({"sources": "f" * 16}, {"triton": "3.7.0"}):
        assert load_code(path, {**HERE, **changed}, {90}) == CodeCache({}, PLANS)


def test_kernels_have_the_machine_code_that_is_asked_for_and_no_other(path: Path):
    add_code(code(kernel("gemm", 80, 90), kernel("rows", 90)), path, HERE)
    found = load_code(path, HERE, {80, 90}).kernels
    assert [one.symbol for one in found.values()] == ["gemm_symbol"]
    assert all(list(one.cubins) == [90] for one in load_code(path, HERE, {90}).kernels.values())


def test_gpus_that_share_a_file_keep_each_others_code(path: Path):
    other = CudnnPlan(b"other", 1, 92000, THERE["gpu"])
    elsewhere = CodeCache({one.spec: one for one in (kernel("gemm", 80), kernel("rows", 80))}, {"b": other})
    here = code(kernel("gemm", 90))
    for one, environment in ((here, HERE), (elsewhere, THERE), (here, HERE)):
        add_code(one, path, environment)
    assert load_code(path, HERE, {90}) == here
    assert load_code(path, THERE, {80}) == elsewhere


def test_machines_with_another_cudnn_keep_each_others_plans(path: Path):
    older, newer = (CudnnPlan(f"of {number}".encode(), 1, number, HERE["gpu"]) for number in (91900, 92000))
    for plan in (older, newer, older):
        add_code(CodeCache({}, {"a": plan}), path, {**HERE, "cudnn": str(plan.cudnn)})
    for plan in (older, newer):
        assert load_code(path, {**HERE, "cudnn": str(plan.cudnn)}, {90}).plans == {"a": plan}


def test_code_for_several_gpus_does_not_take_the_place_of_that_for_one(path: Path):
    """Registers are told of the first GPU: what was compiled for one alone is what its builds make."""
    alone, both = replace(kernel("gemm", 90), registers=90), replace(kernel("gemm", 80, 90), registers=80)
    for one in (alone, both):
        add_code(code(one), path, HERE)
    assert load_code(path, HERE, {90}).kernels == {alone.spec: alone}
    assert load_code(path, HERE, {80, 90}).kernels == {both.spec: both}
    assert load_code(path, HERE, {80}).kernels[both.spec].registers == 80


def test_a_damaged_file_is_made_anew(path: Path, caplog: pytest.LogCaptureFixture):
    path.write_bytes(b"{}")
    add_code(code(kernel("gemm", 90)), path, HERE)
    assert f"'{path}' is damaged" in caplog.text
    assert load_code(path, HERE, {90}) == code(kernel("gemm", 90))


@pytest.mark.parametrize("damage", ["cut off", "changed", "empty", "other"])
def test_a_damaged_file_is_named(path: Path, damage: str):
    add_code(code(kernel("gemm", 90)), path, HERE)
    raw = path.read_bytes()
    middle = len(raw) // 2
    damaged = {
        "cut off": raw[:-9],
        "changed": raw[:middle] + bytes([raw[middle] ^ 1]) + raw[middle + 1 :],
        "empty": b"",
        "other": b"{}",
    }
    path.write_bytes(damaged[damage])
    with pytest.raises(DataError, match=r"timings\.json\.code") as failure:
        load_code(path, HERE, {90})
    assert "`rm " in str(failure.value.hint)
