# SPDX-License-Identifier: Apache-2.0
"""Attention of floats of compute capability 9.0 as machine code: products that overlap, no spills."""

import re
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from triton import knobs

from quantrt.gpu import gpu_named
from quantrt.kernels.attention_floats.spec import FloatTile, configs, kernel_of, shared_bytes, why_not
from quantrt.kernels.compile_all import CompileFailure, compile_all
from tests.kernels.test_attention_compiled import bert

H200 = gpu_named("H200")
PLAIN = bert(mask="none")
FORMS = {
    "mask": (bert(), FloatTile(2, 64, 4)),
    "three": (PLAIN, FloatTile(3, 64, 4)),
    "many keys": (PLAIN, FloatTile(2, 128, 3)),
    "wide": (replace(bert(mask="kept"), D=128, mask_dtype="bool"), FloatTile(2, 64, 4)),
}


@pytest.fixture(scope="module")
def compiled():
    specs = {name: kernel_of(problem, tile) for name, (problem, tile) in FORMS.items()}
    results = compile_all(list(specs.values()), (90,), workers=2)
    return {name: results[spec] for name, spec in specs.items()}


@pytest.mark.parametrize("name", FORMS)
def test_machine_code(compiled, name, tmp_path: Path):
    kernel = compiled[name]
    assert not isinstance(kernel, CompileFailure), kernel.reason
    assert shared_bytes(*FORMS[name]) <= kernel.shared_bytes[90] <= H200.shared_memory_bytes
    assert kernel.spills == 0
    path = tmp_path / "kernel.cubin"
    path.write_bytes(kernel.cubins[90])
    command = [knobs.nvidia.nvdisasm.path, "-c", str(path)]
    text = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    used = re.findall(r"\b(HGMMA|UTMALDG\.4D|WARPGROUP\.DEPBAR|STL|LDL)\b", text)
    assert "UTMALDG.4D" in used
    assert not {"STL", "LDL"} & set(used)
    # One wait for all products of a step: the machine code of products that do not overlap has one for each.
    assert 2 * used.count("WARPGROUP.DEPBAR") < used.count("HGMMA")


def test_what_it_is_for():
    assert why_not(bert(), H200) is None
    assert "90 alone" in why_not(bert(), gpu_named("A100"))
    assert why_not(replace(PLAIN, is_causal=True), H200) == "causal"
    assert "at most 128" in why_not(replace(PLAIN, D=256), H200)
    assert "16 bytes" in why_not(replace(bert(), unit=4), H200)
    assert "float32" in why_not(replace(PLAIN, dtype="float32"), H200)


def test_groups_of_queries_that_fill_tiles_come_first():
    assert [tile.consumers for tile in configs(replace(PLAIN, S=384), H200)] == [2, 3, 2]
    assert configs(replace(PLAIN, S=192), H200)[0].consumers == 3
    assert [tile.name for tile in configs(bert(), H200)] == ["floats 2x64x64 s4"]
    assert not configs(replace(PLAIN, B=1, H=4, S=64, T=64), H200)
