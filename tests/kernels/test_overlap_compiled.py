# SPDX-License-Identifier: Apache-2.0
"""Kernels wait for those before them ahead of all that these may write, where a GPU can launch them early."""

import re
import subprocess
from pathlib import Path

from triton import knobs

from quantrt.kernels.compile import FOLDER
from quantrt.kernels.conv2d import spec as conv2d
from quantrt.kernels.gemm.spec import TileConfig
from quantrt.kernels.gemm.spec import kernel_of as gemm_of
from quantrt.kernels.gemm_hopper.spec import HopperTile
from quantrt.kernels.gemm_hopper.spec import kernel_of as hopper_of
from quantrt.kernels.overlap import HERE, IMAGE_FAMILIES, has_wait, may_overlap, with_wait
from quantrt.regions.expression import IDENTITY
from tests.kernels.products.gemm_problems import plain_codes

PROBLEM = plain_codes(256, 256, 256)
TRITON = gemm_of(PROBLEM, TileConfig(64, 64, 64, 4, 3))
STAGES = 2
GLUON = hopper_of(PROBLEM, HopperTile(64, 64, STAGES))
WINDOW = conv2d.ConvProblem(
    1, 28, 28, 16, 16, 3, 3, (1, 1), (1,) * 4, (1, 1), "int8", IDENTITY, (), ("int8",)
)
CONVOLUTION = conv2d.kernel_of(WINDOW, conv2d.TileConfig(64, 16, 32, 4, 2))
MEMORY = r"LDG|STG|LDGSTS|UTMALDG|RED|ATOMG|UTMASTG"


def instructions(kernel, folder: Path) -> list[str]:
    """Names of those for capability 90 that wait, begin the next kernel or reach memory, as they lie."""
    path = folder / "kernel.cubin"
    path.write_bytes(kernel.cubins[90])
    command = [knobs.nvidia.nvdisasm.path, "-c", str(path)]
    text = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return re.findall(rf"\b(PREEXIT|ACQBULK|{MEMORY})\b", text)


def test_the_wait_is_ahead_of_all_memory(compile_kernels, tmp_path: Path):
    kernel = compile_kernels([TRITON], (80, 90))[TRITON]
    assert kernel.overlaps
    found = instructions(kernel, tmp_path)
    assert found[:2] == ["PREEXIT", "ACQBULK"], "the next kernel may come, then the wait"
    assert set(found[2:]) & set(MEMORY.split("|"))
    assert not {"PREEXIT", "ACQBULK"} & set(found[2:])


def test_weights_of_the_first_blocks_are_ahead_of_the_wait(compile_kernels, tmp_path: Path):
    kernel = compile_kernels([GLUON], (90,))[GLUON]
    assert kernel.overlaps
    begin, *found = instructions(kernel, tmp_path)
    assert begin == "PREEXIT"
    ahead, consumer, producer, other = (part.split() for part in " ".join(found).split("ACQBULK"))
    assert ahead == [], "the first consumer waits ahead of all else"
    assert consumer[-STAGES - 1 :] == ["STG", *["UTMALDG"] * STAGES], "the producer's weights lie behind it"
    assert set(producer) == {"UTMALDG"}
    assert "UTMALDG" not in other


def test_kernels_over_images_are_launched_behind_one_another(compile_kernels):
    """Chains of small ones waited beside each other, and were slower for it."""
    kernel = compile_kernels([CONVOLUTION], (90,))[CONVOLUTION]
    assert not kernel.overlaps
    assert all((FOLDER / family / "triton_kernel.py").is_file() for family in IMAGE_FAMILIES)
    assert not any(may_overlap(family, 90) for family in IMAGE_FAMILIES)
    assert may_overlap("gemm", 90)
    assert not may_overlap("gemm", 89)


def test_older_gpus_have_no_such_instructions(compile_kernels):
    assert not compile_kernels([TRITON], (80,))[TRITON].overlaps


def test_the_wait_goes_behind_the_brace_of_the_entry_alone():
    ptx = ".func f(){ ret; }\n.visible .entry k(\n\t.param .u64 a\n)\n.reqntid 128\n{\n\tret;\n}\n"
    found = with_wait(ptx)
    assert has_wait(found)
    assert not has_wait(ptx)
    assert found.index("{ ret; }") < found.index(".reqntid 128\n{\n\tgriddepcontrol.launch_dependents;")
    assert found.count("griddepcontrol") == 2


def test_a_kernel_may_say_where_it_waits():
    ptx = f".visible .entry k()\n{{\n\tld.global.u32 %r1, [w];\n\tmov.u32 %r2, 0;\n{HERE}\n\tret;\n}}\n"
    found = with_wait(ptx)
    assert has_wait(found)
    assert not has_wait(ptx)
    assert found.count("griddepcontrol") == 2
    assert found.index("launch_dependents") < found.index("ld.global") < found.index("griddepcontrol.wait")
