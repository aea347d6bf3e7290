# SPDX-License-Identifier: Apache-2.0
"""The product of few rows, normalized or not, as machine code of compute capability 9.0."""

import re
import subprocess
from dataclasses import replace

import pytest
from triton import knobs

from quantrt.gpu import gpu_named
from quantrt.kernels.compile_all import CompileFailure, compile_all
from quantrt.kernels.few_rows.spec import LAYER, MAX_TERMS, RMS, FewRowsProblem, kernel_of, why_not
from quantrt.kernels.few_rows.tiles import configs
from tests.kernels.gemm_problems import (
    gated_codes,
    heavy_codes,
    heavy_floats,
    plain_codes,
    plain_floats,
    scaled_rows,
)

H200 = gpu_named("H200")
LAYER_SIZES = (197, 3072, 768)
PROBLEMS = {
    "floats": FewRowsProblem(plain_floats(*LAYER_SIZES), LAYER, 1e-6),
    "rms norm": FewRowsProblem(plain_floats(*LAYER_SIZES), RMS, 1e-6),
    "heavy": FewRowsProblem(heavy_floats(*LAYER_SIZES), LAYER, 1e-6),
    "bfloat16": FewRowsProblem(
        replace(plain_floats(*LAYER_SIZES), dtype="bfloat16", outputs=("bfloat16",)), LAYER, 1e-6
    ),
    "plain": FewRowsProblem(plain_floats(*LAYER_SIZES)),
    "plain heavy": FewRowsProblem(heavy_floats(*LAYER_SIZES)),
    "plain codes": FewRowsProblem(plain_codes(*LAYER_SIZES)),
    "codes": FewRowsProblem(heavy_codes(*LAYER_SIZES)),
    "scales of rows": FewRowsProblem(scaled_rows(*LAYER_SIZES)),
    "gate": FewRowsProblem(gated_codes(*LAYER_SIZES)),
    "odd": FewRowsProblem(plain_floats(7, 1000, 200), LAYER, 1e-6),
}


@pytest.fixture(scope="module")
def compiled():
    specs = {
        (name, tile.name): kernel_of(problem, tile)
        for name, problem in PROBLEMS.items()
        for tile in configs(problem, H200)
    }
    found = compile_all(list(specs.values()), (90,), workers=1)
    return {key: found[spec] for key, spec in specs.items()}


def test_every_tile_compiles_and_none_spills(compiled):
    assert len(compiled) >= 3 * len(PROBLEMS)
    for key, kernel in compiled.items():
        assert not isinstance(kernel, CompileFailure), key
        assert kernel.spills == 0 and kernel.overlaps, key
        assert kernel.shared_bytes[90] <= H200.shared_memory_bytes, key


def test_weights_come_ahead_of_the_wait_and_all_else_behind_it(compiled, tmp_path):
    (tile,) = [tile for tile in configs(PROBLEMS["floats"], H200) if tile.name == "hopper 64x64 s6"]
    path = tmp_path / "kernel.cubin"
    path.write_bytes(compiled["floats", tile.name].cubins[90])
    command = [knobs.nvidia.nvdisasm.path, "-c", str(path)]
    text = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    found = re.findall(r"\b(PREEXIT|ACQBULK|HGMMA|LDG|STG|UTMALDG)\b", text)
    place = found.index("ACQBULK")
    assert found[:place] == ["PREEXIT", *["UTMALDG"] * tile.stages]
    assert found.count("HGMMA") == 4, "one of 16 terms each, of a block of 64"
    # A thread reads 32 elements of a block, and 4 blocks of 8 columns of y leave it in vectors of 16 bytes.
    assert len(re.findall(r"\bLDS\.128\b", text)) >= 4
    assert len(re.findall(r"\bSTG\.E\.128\b", text)) == 4


@pytest.mark.parametrize(
    ("problem", "reason"),
    [
        (FewRowsProblem(plain_codes(*LAYER_SIZES), LAYER, 1e-6), "not of int8"),
        (FewRowsProblem(plain_floats(197, 64, MAX_TERMS + 8), LAYER, 1e-6), "at most 4096"),
        (FewRowsProblem(replace(plain_floats(197, 64, 100), stride_unit=4), LAYER, 1e-6), "16 bytes"),
    ],
)
def test_why_not(problem, reason):
    assert reason in why_not(problem, H200)


def test_another_gpu():
    assert "capability 90 alone" in why_not(PROBLEMS["floats"], gpu_named("A100"))
