# SPDX-License-Identifier: Apache-2.0
"""Our convolution compiled for GPUs that are not here, and the instructions that came out."""

import re
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from triton import knobs

from quantrt.gpu import gpu_named
from quantrt.kernels.conv2d.spec import ConvProblem, TileConfig, is_early, kernel_of
from quantrt.kernels.conv2d.tiles import configs
from quantrt.kernels.depthwise import spec as depthwise
from quantrt.kernels.kernel import CompiledKernel
from quantrt.kernels.pixel_tile import PixelTile
from quantrt.regions.expression import Expression, Operand
from tests.conv_layers import layer
from tests.kernels.memory_bound.expressions import Builder, constant, scalar

CAPABILITIES = (80, 86, 89, 90, 100, 120)
SHARED_BYTES = {80: 163, 86: 99, 89: 99, 90: 227, 100: 227, 120: 99}
"""Most that a block can have, in KiB: CUDA C++ programming guide, technical specifications per capability."""

TILE = TileConfig(128, 64, 64, 4, 3)


def residual_relu(*, is_integer: bool) -> Expression:
    b = Builder(
        Operand("accumulator"),
        constant("scale"),
        constant("bias"),
        Operand("tensor", "r"),
        *([scalar(0.1), scalar(0.2)] if is_integer else []),
    )
    residual = b("mul", 3, 4) if is_integer else 3
    y = b("max", b("add", b("add", b("mul", 0, 1), 2), residual), b.const(0.0))
    return b.build(b("quantize", y, 5) if is_integer else y)


def problem(dtype: str, C: int = 256, taps: int = 3) -> ConvProblem:
    """A layer of ResNet-50."""
    epilogue = residual_relu(is_integer=dtype == "int8")
    return layer(14, C, 256, taps, dtype=dtype, epilogue=epilogue, tensors=(dtype,), outputs=(dtype,))


@pytest.fixture(scope="module")
def compiled(compiled_all) -> dict[str, CompiledKernel]:
    """The same tile for codes and floats, and a depthwise one, for every capability."""
    specs = {dtype: kernel_of(problem(dtype), TILE) for dtype in ("int8", "float16")}
    alone = problem("int8")
    specs["depthwise"] = depthwise.kernel_of(alone, PixelTile(32, 32, 2))
    return dict(zip(specs, compiled_all(list(specs.values()), CAPABILITIES), strict=True))


def instructions(cubin: bytes, folder: Path) -> set[str]:
    """Names of the machine's products and of its loads from memory."""
    path = folder / "kernel.cubin"
    path.write_bytes(cubin)
    command = [knobs.nvidia.nvdisasm.path, "-c", str(path)]
    text = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return set(re.findall(r"\b(?:[A-Z]*MMA|LDGSTS|LDG)[\w.]*", text))


@pytest.mark.parametrize("capability", CAPABILITIES)
@pytest.mark.parametrize("dtype", ["int8", "float16"])
def test_it_compiles_everywhere(
    compiled: dict[str, CompiledKernel], dtype: str, capability: int, tmp_path: Path
):
    kernel = compiled[dtype]
    assert 0 < kernel.shared_bytes[capability] <= SHARED_BYTES[capability] * 1024
    used = instructions(kernel.cubins[capability], tmp_path)
    assert any("MMA" in name for name in used)
    assert "LDGSTS.E.BYPASS.128" in used  # copies of 16 bytes run ahead of the products


@pytest.mark.parametrize("capability", CAPABILITIES)
def test_depthwise_loads_are_whole_vectors(
    compiled: dict[str, CompiledKernel], capability: int, tmp_path: Path
):
    used = instructions(compiled["depthwise"].cubins[capability], tmp_path)
    assert any(name.startswith("LDG.E.128") for name in used), used
    assert not any("LDG.E.U8" in name or "LDG.E.S8" in name for name in used), used


@pytest.mark.parametrize(
    ("dtype", "capability", "product"),
    [
        ("int8", 80, "IMMA.16832.S8.S8"),
        ("int8", 90, "IGMMA.64x64x32.S8.S8"),
        ("float16", 80, "HMMA.16816.F32"),
        ("float16", 90, "HGMMA.64x64x16.F32"),
    ],
)
def test_products_are_those_of_the_tensor_cores(
    compiled: dict[str, CompiledKernel], dtype: str, capability: int, product: str, tmp_path: Path
):
    used = instructions(compiled[dtype].cubins[capability], tmp_path)
    assert any(name.startswith(product) for name in used), used


def test_short_sums_with_a_residual_do_not_spill(compiled_all):
    """Their epilogue's operands are loaded before the products, and kept meanwhile."""
    h200 = gpu_named("H200")
    problems = [replace(problem(dtype, C=64, taps=1), H=56, W=56) for dtype in ("int8", "float16")]
    specs = [kernel_of(x, config) for x in problems for config in configs(x, h200) if is_early(x, config)]
    assert len(specs) > 8
    assert all(kernel.spills == 0 for kernel in compiled_all(specs, (90,)))


def test_the_default_tiles_do_not_spill(compiled_all):
    h200 = gpu_named("H200")
    problems = [problem("int8"), problem("float16"), problem("int8", C=3, taps=7)]
    specs = [kernel_of(x, configs(x, h200)[0]) for x in problems]
    kernels = compiled_all(specs, (90,))
    assert [kernel.spills for kernel in kernels] == [0, 0, 0]
    assert all(kernel.registers > 32 for kernel in kernels)  # the compiler did say
