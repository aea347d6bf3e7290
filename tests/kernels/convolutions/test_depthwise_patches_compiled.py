# SPDX-License-Identifier: Apache-2.0
"""Machine code of our depthwise convolution in patches."""

import re
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from quantrt.gpu import gpu_named
from quantrt.kernels.conv2d.spec import ConvProblem
from quantrt.kernels.depthwise_patches.spec import kernel_of
from quantrt.kernels.depthwise_patches.tiles import configs
from quantrt.kernels.kernel import CompiledKernel
from quantrt.regions.expression import Operand
from tests.conv_layers import layer
from tests.kernels.memory_bound.expressions import Builder, constant, scalar

knobs = pytest.importorskip("triton").knobs

CAPABILITIES = (80, 86, 89, 90, 100, 120)
H200 = gpu_named("H200")


def problem(dtype: str, taps: int, stride: int) -> ConvProblem:
    """A layer of MobileNetV2, or one like it, with ReLU behind."""
    b = Builder(Operand("accumulator"), constant("scale"), constant("bias"), scalar(0.02))
    y = b("max", b("add", b("mul", 0, 1), 2), b.const(0.0))
    epilogue = b.build(b("quantize", y, 3) if dtype == "int8" else y)
    found = layer(56, 144, 144, taps, dtype=dtype, epilogue=epilogue, outputs=(dtype,))
    return replace(found, strides=(stride, stride))


PROBLEMS = {
    (dtype, taps, stride): problem(dtype, taps, stride)
    for dtype in ("int8", "float16")
    for taps, stride in ((3, 1), (3, 2), (5, 1))
}


@pytest.fixture(scope="module")
def compiled(compiled_all) -> dict[tuple[str, int, int], CompiledKernel]:
    """The first patch of every problem, for 9.0; that of codes in lines of three taps for all."""
    specs = [kernel_of(x, configs(x, H200)[0]) for x in PROBLEMS.values()]
    first, *others = specs
    found = [*compiled_all([first], CAPABILITIES), *compiled_all(others, (90,))]
    return dict(zip(PROBLEMS, found, strict=True))


def instructions(cubin: bytes, folder: Path) -> list[str]:
    path = folder / "kernel.cubin"
    path.write_bytes(cubin)
    command = [knobs.nvidia.nvdisasm.path, "-c", str(path)]
    text = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return re.findall(r"\b(?:LDG|STG|IDP|FFMA|I2F)[\w.]*", text)


@pytest.mark.parametrize("key", PROBLEMS, ids=str)
def test_nothing_spills(compiled: dict[tuple[str, int, int], CompiledKernel], key: tuple[str, int, int]):
    assert compiled[key].spills == 0
    assert 32 < compiled[key].registers <= 200


@pytest.mark.parametrize("capability", CAPABILITIES)
def test_lines_of_codes_are_one_instruction(
    compiled: dict[tuple[str, int, int], CompiledKernel], capability: int, tmp_path: Path
):
    key = ("int8", 3, 1)
    fixed = dict(compiled[key].spec.constants)
    used = instructions(compiled[key].cubins[capability], tmp_path)
    dots = [name for name in used if name.startswith("IDP.4A.S8.S8")]
    assert len(dots) == 3 * 4 * fixed["COLUMNS"]  # lines of taps, channels of a word
    loads = [name for name in used if name.startswith("LDG")]
    assert len(loads) == 2 * (fixed["COLUMNS"] + 2) + 9 + 2  # two lines of x, weights, constants
    assert not any("8" in name.split(".")[2:] for name in loads if ".128" not in name), loads


@pytest.mark.parametrize("key", [("float16", 3, 1), ("int8", 5, 1)], ids=str)
def test_others_add_in_float32_without_conversions_of_integers(
    compiled: dict[tuple[str, int, int], CompiledKernel], key: tuple[str, int, int], tmp_path: Path
):
    fixed = dict(compiled[key].spec.constants)
    used = instructions(compiled[key].cubins[90], tmp_path)
    channels = 4 if key[0] == "int8" else 2
    sums = fixed["COLUMNS"] * channels * key[1] ** 2
    assert sums <= used.count("FFMA") + used.count("FFMA.FTZ") < 1.5 * sums
    assert sum(name.startswith("I2F") for name in used) < 8  # of places alone
