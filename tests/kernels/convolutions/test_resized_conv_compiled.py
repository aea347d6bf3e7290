# SPDX-License-Identifier: Apache-2.0
"""Convolutions of repeated pixels as machine code: gathered for every GPU, in phases for 9.0."""

from dataclasses import replace

import pytest

from quantrt.gpu import gpu_named
from quantrt.kernels.compile_all import CompileFailure
from quantrt.kernels.conv2d.spec import kernel_of
from quantrt.kernels.phases.spec import Phases, phases_of
from quantrt.tactics.cuda.convolutions.resized_conv import _windows
from tests.kernels.convolutions.test_conv2d_compiled import CAPABILITIES, SHARED_BYTES, TILE, problem

H200 = gpu_named("H200")

LARGE = {"images": 2, "H": 64, "W": 64, "C": 640, "N": 640, "repeats": (2, 2)}
"""The last of SDXL's UNet."""

PHASES = {
    "floats": replace(problem("float16"), **LARGE),
    "bfloat16": replace(problem("bfloat16"), **LARGE),
    "codes as floats": replace(problem("int8"), **LARGE, dtype="float16"),
    "slices of channels": replace(problem("float16"), **LARGE, x_pitch=1280, pitches=(0, 960)),
}


@pytest.mark.parametrize("dtype", ["int8", "float16", "bfloat16"])
def test_gathered(compiled_all, dtype):
    """Copies still run ahead of the products: shared memory holds the stages."""
    specs = [kernel_of(replace(problem(dtype), repeats=(2, 2)), TILE)]
    if dtype != "int8":
        phases = phases_of(replace(problem(dtype), repeats=(2, 2)))
        specs.append(kernel_of(phases.problem, TILE, phases=phases.repeats, leads=phases.leads))
    for kernel in compiled_all(specs, CAPABILITIES):
        for capability in CAPABILITIES:
            most = SHARED_BYTES[capability] << 10
            assert TILE.shared_bytes(dtype) * 2 // 3 <= kernel.shared_bytes[capability] <= most


@pytest.fixture(scope="module")
def phased(compile_kernels):
    specs = {}
    for name, one in PHASES.items():
        phases = phases_of(one)
        assert isinstance(phases, Phases), phases
        specs |= {f"{name} {tile}": spec for tile, spec in _windows(phases, H200)}
    results = compile_kernels(list(specs.values()), (90,))
    return {name: results[spec] for name, spec in specs.items()}


def test_in_phases(phased):
    assert len(phased) >= 2 * len(PHASES)
    for name, kernel in phased.items():
        assert not isinstance(kernel, CompileFailure), f"{name}: {kernel.reason}"
        assert kernel.shared_bytes[90] <= SHARED_BYTES[90] << 10, name
        assert kernel.spills == 0, name
