# SPDX-License-Identifier: Apache-2.0
"""A first layer and its max pool as machine code, and which tiles are tried."""

import re
import subprocess
from dataclasses import replace

import pytest
from triton import knobs

from quantrt.gpu import gpu_named
from quantrt.kernels.compile_all import CompileFailure
from quantrt.kernels.conv2d.spec import ConvProblem
from quantrt.kernels.fold_pixels.spec import folding_of
from quantrt.kernels.pooled_conv.spec import PooledTile, configs, folded_bytes, kernel_of, why_not
from tests.kernels.convolutions.test_conv2d_compiled import problem
from tests.kernels.memory_bound.expressions import Builder, constant, scalar
from tests.kernels.products.gemm_problems import SUM

H200 = gpu_named("H200")
SIZES = {"images": 256, "H": 224, "W": 224, "N": 64, "strides": (2, 2), "pads": (3,) * 4}


def stem(dtype: str) -> ConvProblem:
    """With scales, biases and ReLU."""
    b = Builder(SUM, constant("scale"), constant("bias"), scalar(0.1))
    y = b("max", b("add", b("mul", 0, 1), 2), b.const(0.0))
    y = b("quantize", y, 3) if dtype == "int8" else y
    one = replace(problem(dtype, C=3, taps=7), **SIZES, tensors=(), outputs=(dtype,))
    return replace(one, epilogue=b.build(y))


STEM = stem("int8")
STEMS = {name: stem(name) for name in ("int8", "float16")}


@pytest.fixture(scope="module")
def compiled(compile_kernels):
    specs = {name: kernel_of(one, folding_of(one), PooledTile(14, 8)) for name, one in STEMS.items()}
    results = compile_kernels(list(specs.values()), (90,))
    return {name: results[spec] for name, spec in specs.items()}


@pytest.mark.parametrize("name", STEMS)
def test_machine_code(compiled, name, tmp_path):
    kernel = compiled[name]
    assert not isinstance(kernel, CompileFailure), kernel.reason
    assert kernel.spills == 0
    assert 128 * kernel.registers * 3 <= 65536, "three programs of a multiprocessor"
    path = tmp_path / "kernel.cubin"
    path.write_bytes(kernel.cubins[90])
    command = [knobs.nvidia.nvdisasm.path, "-c", str(path)]
    text = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    used = set(re.findall(r"\b(?:[A-Z]*MMA|UTMALDG|SHFL|STL|LDL|STS|LDS)\b[\w.]*", text))
    assert any(one.startswith("IGMMA" if name == "int8" else "HGMMA") for one in used)
    assert "UTMALDG.5D" in used
    assert any(one.startswith("SHFL.UP") for one in used)
    assert not any(one.startswith(("STL", "LDL", "STS", "LDS")) for one in used), "columns stay in registers"


def test_tiles_fill_the_device():
    for images, lines in ((1, 4), (32, 10), (256, 19)):
        one = replace(STEM, images=images)
        tiles = configs(one, folding_of(one), H200)
        assert [(tile.lines, tile.stages) for tile in tiles[:2]] == [(lines, 8), (lines, 12)]
        assert len(tiles) <= 4
    assert folded_bytes(STEM, folding_of(STEM)) == (256 * 115 + 1) * 117 * 16


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({}, None),
        ({"N": 32}, "32 channels"),
        ({"H": 226}, "odd"),
        ({"tensors": ("int8",)}, "other tensors"),
    ],
)
def test_what_it_is_for(changes, reason):
    found = why_not(replace(STEM, **changes), H200)
    assert found is None if reason is None else reason in found
    assert "9" in why_not(STEM, gpu_named("A100"))
