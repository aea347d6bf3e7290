# SPDX-License-Identifier: Apache-2.0
"""The product of few rows as machine code of compute capability 9.0."""

import re
import subprocess
from dataclasses import replace

import pytest
from triton import knobs

from quantrt.gpu import gpu_named
from quantrt.kernels.compile_all import CompileFailure
from quantrt.kernels.few_rows.spec import kernel_of
from quantrt.kernels.few_rows.tiles import configs
from tests.kernels.products.gemm_problems import (
    gated_codes,
    heavy_codes,
    heavy_floats,
    plain_codes,
    plain_floats,
    scaled_rows,
)

H200 = gpu_named("H200")
SIZES = (197, 3072, 768)
PROBLEMS = {
    "floats": plain_floats(*SIZES),
    "heavy floats": heavy_floats(*SIZES),
    "bfloat16": replace(plain_floats(*SIZES), dtype="bfloat16", outputs=("bfloat16",)),
    "codes": plain_codes(*SIZES),
    "heavy codes": heavy_codes(*SIZES),
    "scales of rows": scaled_rows(*SIZES),
    "gate": gated_codes(*SIZES),
    "odd": plain_floats(7, 1000, 200),
}


@pytest.fixture(scope="module")
def compiled(compile_kernels):
    specs = {
        (name, tile.name): kernel_of(problem, tile)
        for name, problem in PROBLEMS.items()
        for tile in configs(problem, H200)
    }
    found = compile_kernels(list(specs.values()), (90,))
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
    # 4 blocks of 8 columns of y leave a thread in vectors of 16 bytes.
    assert len(re.findall(r"\bSTG\.E\.128\b", text)) == 4
