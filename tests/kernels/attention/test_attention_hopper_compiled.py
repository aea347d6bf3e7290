# SPDX-License-Identifier: Apache-2.0
"""Attention of compute capability 9.0 as machine code: the products it should have, and nothing spilled."""

import ast
import re
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from triton import knobs

from quantrt.gpu import gpu_named
from quantrt.kernels.attention_codes.spec import CodeFormat, encoder_of
from quantrt.kernels.attention_hopper import triton_kernel
from quantrt.kernels.attention_hopper.spec import HopperAttention, kernel_of, shared_bytes, why_not
from quantrt.kernels.compile_all import CompileFailure
from quantrt.kernels.jit import attention_fragments as fragments
from quantrt.kernels.jit import attention_weights as weights
from quantrt.regions.expression import IDENTITY
from tests.kernels.attention.test_attention_compiled import bert
from tests.kernels.convolutions.test_conv2d_compiled import CAPABILITIES

H200 = gpu_named("H200")
WIDE = replace(bert(mask="none"), D=128, epilogue=IDENTITY, outputs=("float16",))
ROW = replace(bert(), has_mask_rows=False)
FILES = (triton_kernel.__file__, fragments.__file__, weights.__file__)

FORMS = {
    "codes": (bert(mask="none"), HopperAttention("int8", "fp8", 128, 4), ("IGMMA", "QGMMA")),
    "lines": (
        bert(mask="none"),
        HopperAttention("int8", "fp8", 128, 4, lines=1),
        ("IGMMA", "QGMMA"),
    ),
    "wide codes": (WIDE, HopperAttention("int8", "fp8", 128, 4, lines=2), ("IGMMA", "QGMMA")),
    "wide causal codes": (
        replace(WIDE, is_causal=True),
        HopperAttention("int8", "fp8", 128, 4, lines=2),
        ("IGMMA", "QGMMA"),
    ),
    "turns": (WIDE, HopperAttention("int8", "fp8", 128, 4, lines=2, turns=True), ("IGMMA", "QGMMA")),
    "causal": (
        replace(bert(mask="none"), is_causal=True),
        HopperAttention("int8", "fp8", 128, 4, lines=2),
        ("IGMMA", "QGMMA"),
    ),
    "float scores": (
        bert(mask="none"),
        HopperAttention("floats", "fp8", 128, 4),
        ("HGMMA", "QGMMA"),
    ),
    "float values": (WIDE, HopperAttention("int8", "floats", 64, 4), ("IGMMA", "HGMMA")),
    "row of a mask": (ROW, HopperAttention("floats", "floats", 128, 3), ("HGMMA", "HGMMA")),
    "floats": (
        replace(bert(mask="none"), dtype="bfloat16"),
        HopperAttention("floats", "floats", 128, 3),
        ("HGMMA", "HGMMA"),
    ),
}


@pytest.fixture(scope="module")
def compiled(compile_kernels):
    specs = {name: kernel_of(problem, how) for name, (problem, how, _) in FORMS.items()}
    results = compile_kernels(list(specs.values()), (90,))
    return {name: results[spec] for name, spec in specs.items()}


@pytest.mark.parametrize("name", FORMS)
def test_machine_code(compiled, name, tmp_path: Path):
    kernel = compiled[name]
    problem, how, products = FORMS[name]
    assert not isinstance(kernel, CompileFailure), kernel.reason
    assert shared_bytes(problem, how) <= kernel.shared_bytes[90] <= H200.shared_memory_bytes
    assert kernel.spills == 0
    path = tmp_path / "kernel.cubin"
    path.write_bytes(kernel.cubins[90])
    command = [knobs.nvidia.nvdisasm.path, "-c", str(path)]
    text = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    used = re.findall(r"\b(?:[A-Z0-9]*MMA|UTMALDG|USETMAXREG|WARPGROUP|STL|LDL|STG|I2F|I2FP)\b[\w.]*", text)
    for product in products:
        assert any(one.startswith(product) for one in used)
    assert "UTMALDG.4D" in used
    assert any(one.startswith("USETMAXREG") for one in used)
    assert not any(one.startswith(("STL", "LDL")) for one in used)
    # Sums become floats without conversions, but for the largest of a row; divisions of tiles have some too.
    assert sum(one.startswith("I2F") for one in used) < how.block_n // 2
    # Products run on while others are begun: one start and one wait for both of a step.
    starts = sum(one.startswith("WARPGROUP.ARRIVE") for one in used)
    assert starts < sum("GMMA" in one for one in used)
    assert {one for one in used if one.startswith("STG")} <= {"STG.E.128", "STG.E.64"}


def test_codes_are_made_everywhere(compile_kernels):
    spec = encoder_of(bert(mask="none"), CodeFormat("int8", "fp8", 128, 64))
    plain = encoder_of(bert(mask="none"), CodeFormat("int8", "floats", 64, 64))
    results = compile_kernels([spec, plain], (89, 90))
    results |= compile_kernels([plain], CAPABILITIES)
    assert not [kernel for kernel in results.values() if isinstance(kernel, CompileFailure)]
    assert all(kernel.spills == 0 for kernel in results.values())


def test_what_it_is_not_for():
    assert why_not(bert(mask="none"), H200) is None
    assert why_not(ROW, H200) is None
    assert why_not(bert(), H200) == "a mask with a row for every query"
    assert why_not(replace(ROW, mask="kept", mask_dtype="bool"), H200) == "keys that are kept"
    assert "of bfloat16" in why_not(replace(ROW, mask_dtype="bfloat16"), H200)
    assert "causal" in why_not(replace(ROW, is_causal=True), H200)
    assert "16 bytes" in why_not(replace(ROW, mask_unit=1), H200)
    assert "90 alone" in why_not(bert(mask="none"), gpu_named("A100"))
    assert "at most 128" in why_not(replace(bert(mask="none"), D=256), H200)
    assert "16 bytes" in why_not(replace(bert(mask="none"), unit=4), H200)


def test_no_variable_of_a_loop_is_another_ones_name():
    """Triton 3.6 does not carry a variable through a loop that is set to another one there."""
    trees = [ast.parse(Path(file).read_text(encoding="utf-8")) for file in FILES]
    loops = [node for tree in trees for node in ast.walk(tree) if isinstance(node, ast.For)]
    running = [loop for loop in loops if "static_range" not in ast.unparse(loop.iter)]
    assert running
    for loop in running:
        for node in ast.walk(loop):
            if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
                assert not isinstance(node.value, ast.Name), ast.unparse(node)
