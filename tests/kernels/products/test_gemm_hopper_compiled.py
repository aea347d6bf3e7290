# SPDX-License-Identifier: Apache-2.0
"""The kernel of compute capability 9.0 as machine code: products, copies and stores as wide as can be."""

import ast
import re
import subprocess
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from triton import knobs

from quantrt.gpu import gpu_named
from quantrt.kernels.compile_all import CompileFailure
from quantrt.kernels.gemm_hopper import triton_kernel
from quantrt.kernels.gemm_hopper.pixels import as_product
from quantrt.kernels.gemm_hopper.spec import (
    HopperTile,
    fits_registers,
    kernel_of,
    rows_in_order,
    steps_of,
    why_not,
)
from quantrt.kernels.gemm_hopper.tiles import configs
from quantrt.kernels.jit import block_sums, fragments, producer, ring, slices
from quantrt.regions.region import Conv
from quantrt.tactics.cuda.convolutions import conv2d
from quantrt.tactics.cuda.products.gemm import list_tactics
from quantrt.tactics.cuda.tactic import Tactic, Workload
from tests.kernels.convolutions.test_conv2d_compiled import problem as convolution
from tests.kernels.products.gemm_problems import (
    gated_codes,
    gelu_codes,
    heavy_codes,
    heavy_floats,
    plain_codes,
    plain_floats,
    residual_floats,
    scaled_rows,
)
from tests.unit.tactics.cuda.workload_samples import facts, int8_gemm

LAYER = (6304, 3072, 768)
SHARED_BYTES = 227 * 1024
MODULES = (triton_kernel, block_sums, producer, slices, ring, fragments)
FILES = tuple(module.__file__ for module in MODULES)

PROBLEMS = {
    "codes": plain_codes(*LAYER),
    "heavy codes": heavy_codes(*LAYER),
    "floats": plain_floats(*LAYER),
    "bfloat16": replace(plain_floats(*LAYER), dtype="bfloat16", outputs=("bfloat16",)),
    "heavy floats": heavy_floats(*LAYER),
    "residual": residual_floats(*LAYER),
    "float32 beside codes": replace(heavy_codes(*LAYER), outputs=("float32", "int8")),
    "gate": gated_codes(*LAYER),
    "rows": scaled_rows(*LAYER),
    "few channels": heavy_codes(6304, 1024, 128),
    "columns left over": plain_codes(6304, 1000, 768),
    "short sum": as_product(replace(convolution("int8"), C=128, N=512, R=1, S=1, pads=(0,) * 4)),
}


WIDE = HopperTile(128, 160, 5)
CASES = [(name, HopperTile(128, 128, 6)) for name in PROBLEMS]
CASES += [("heavy codes", HopperTile(128, 128, 6, is_looped=True))]
CASES += [("few channels", HopperTile(128, 256, 4, is_sliced=True))]
CASES += [("short sum", HopperTile(128, 256, 4, is_sliced=True))]
SHARED = replace(WIDE, is_shared=True)
CASES += [(name, SHARED) for name in ("codes", "residual", "heavy floats")]
CASES += [("heavy codes", replace(SHARED, is_looped=True))]
PROBLEMS |= {
    "fp8": gelu_codes(4096, 4096, 4096, "float8_e4m3fn"),
    "fp8 gate": replace(gated_codes(2048, 1024, 4096), dtype="float8_e4m3fn"),
}
PROMOTED = HopperTile(128, 128, 6, is_shared=True, is_promoted=True)
CASES += [("fp8", PROMOTED), ("fp8 gate", PROMOTED), ("fp8", replace(SHARED, is_promoted=True))]
CASES += [(name, WIDE) for name, problem in PROBLEMS.items() if fits_registers(problem, WIDE)]


@pytest.fixture(scope="module")
def compiled(compile_kernels):
    specs = {case: kernel_of(PROBLEMS[case[0]], case[1]) for case in CASES}
    results = compile_kernels(list(specs.values()), (90,))
    return {case: results[spec] for case, spec in specs.items()}


@pytest.mark.parametrize(("name", "tile"), CASES, ids=lambda value: getattr(value, "name", value))
def test_machine_code(compiled, name, tile, tmp_path: Path):
    kernel = compiled[name, tile]
    assert not isinstance(kernel, CompileFailure), kernel.reason
    assert kernel.shared_bytes[90] <= SHARED_BYTES
    assert kernel.spills == 0
    path = tmp_path / "kernel.cubin"
    path.write_bytes(kernel.cubins[90])
    command = [knobs.nvidia.nvdisasm.path, "-c", str(path)]
    text = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    names = "[A-Z]*MMA|UTMALDG|USETMAXREG|WARPGROUP|STL|LDL|STS|STG"
    used = set(re.findall(rf"\b(?:{names})\b[\w.]*", text))
    product = {"int8": "IGMMA", "float8_e4m3fn": "QGMMA"}.get(PROBLEMS[name].dtype, "HGMMA")
    assert any(one.startswith(product) for one in used)
    assert any(one.startswith("UTMALDG.2D") for one in used)
    assert any(one.startswith("USETMAXREG") for one in used)
    assert not any(one.startswith(("STL", "LDL")) for one in used)
    if name not in ("columns left over", "gate", "fp8 gate"):
        assert used & {"STG.E.128", "STG.E.64"}
    if name not in ("columns left over", "float32 beside codes"):
        assert not any(re.fullmatch(r"STG\.E(\.U8|\.U16)?", one) for one in used)


def test_for_other_gpus_there_is_no_machine_code(compile_kernels):
    spec = kernel_of(PROBLEMS["codes"], HopperTile(128, 128, 4))
    (result,) = compile_kernels([spec], (80,)).values()
    assert isinstance(result, CompileFailure)
    assert "for compute capability 90 alone" in result.reason


def test_what_it_is_not_for():
    h200, a100 = gpu_named("H200"), gpu_named("A100")
    assert why_not(PROBLEMS["codes"], h200) is None
    assert "9" in why_not(PROBLEMS["codes"], a100)
    assert "multiples of 16 bytes" in why_not(plain_codes(6304, 3072, 776), h200)
    assert "multiples of 16 bytes" in why_not(replace(PROBLEMS["codes"], stride_unit=8), h200)
    assert why_not(replace(PROBLEMS["floats"], stride_unit=8, K=776), h200) is None
    assert "float32" in why_not(replace(PROBLEMS["floats"], dtype="float32"), h200)


def test_no_variable_of_a_loop_is_another_ones_name():
    """Triton 3.6 does not carry a variable through a loop that is set to another one there."""
    trees = [ast.parse(Path(file).read_text(encoding="utf-8")) for file in FILES]
    loops = [node for tree in trees for node in ast.walk(tree) if isinstance(node, ast.For)]
    static = [loop for loop in loops if "static_range" in ast.unparse(loop.iter)]
    assert len(loops) > len(static)
    for loop in loops:
        if loop not in static:
            for node in ast.walk(loop):
                if isinstance(node, ast.Assign):
                    assert not isinstance(node.value, ast.Name), ast.unparse(node)


def test_it_is_tried_before_other_tiles_where_it_fills_the_device():
    workload = int8_gemm(M=6304, N=768, K=768)
    h200 = gpu_named("H200")
    names = [row.name for row in list_tactics(workload, h200) if isinstance(row, Tactic)]
    own = [name for name in names if name.startswith("gemm")]
    assert own[0].startswith("gemm hopper")
    assert any(not name.startswith("gemm hopper") for name in own[:6])
    small = [row.name for row in list_tactics(int8_gemm(M=64, N=768, K=768), h200)]
    older = [row.name for row in list_tactics(workload, gpu_named("A100"))]
    assert not any("hopper" in name for name in (*small, *older))


def test_a_wide_tile_is_tried_where_it_spares_a_round():
    h200 = gpu_named("H200")
    sizes = [(2048, 1280, 1280), (2048, 1280, 5120), (6304, 768, 3072), (12288, 1024, 1024)]
    widths = [configs(residual_floats(*size), h200)[0].block_n for size in sizes]
    assert widths == [160, 160, 160, 128]
    for problem in (gated_codes(2048, 1280, 1280), heavy_codes(2048, 1280, 1280)):  # no registers for it
        assert all(tile.block_n <= 128 or tile.is_shared for tile in configs(problem, h200))


def test_a_tile_is_shared_where_programs_have_few():
    h200 = gpu_named("H200")
    first, second = configs(residual_floats(2048, 1280, 1280), h200)[:2]
    assert first == replace(second, is_shared=True)
    assert first.sums == 80
    assert first.name == "hopper 128x160 s5 shared"
    for size in ((4352, 1280, 1280), (12288, 1024, 1024)):
        assert not any(tile.is_shared for tile in configs(residual_floats(*size), h200))


def test_what_makes_codes_of_residuals_is_tried_in_a_loop_too():
    h200 = gpu_named("H200")
    found = configs(heavy_codes(12288, 1024, 1024), h200)
    assert [tile.is_looped for tile in found[:3]] == [True, True, False]
    assert found[0] == replace(found[2], is_looped=True)
    for problem in (plain_codes(*LAYER), residual_floats(*LAYER)):
        assert not any(tile.is_looped for tile in configs(problem, h200))


@pytest.mark.parametrize("dtype", ["int8", "float8_e4m3fn"])
def test_a_gelu_is_tried_in_a_loop_too(compile_kernels, dtype):
    """Behind the others, in two thirds of the machine code; one word of the producer is on the stack."""
    h200 = gpu_named("H200")
    problem = gelu_codes(*LAYER, dtype)
    found = configs(problem, h200)
    looped = [tile for tile in found if tile.is_looped]
    assert found[-2:] == tuple(looped)
    assert looped == [replace(tile, is_looped=True) for tile in found[:2]]
    usual, short = (
        next(iter(compile_kernels([kernel_of(problem, tile)], (90,)).values()))
        for tile in (found[0], looped[0])
    )
    assert usual.spills == 0
    assert short.spills <= 2
    assert len(short.cubins[90]) < 0.75 * len(usual.cubins[90])
    assert not any(tile.is_looped for tile in configs(heavy_floats(*LAYER), h200))  # a tensor, but no codes


def test_short_products_are_tried_in_slices_first():
    h200 = gpu_named("H200")
    found = configs(heavy_codes(802816, 256, 64), h200)
    assert [tile.name for tile in found if tile.is_sliced] == [
        "hopper 128x256 s8 sliced",
        "hopper 128x128 s8 sliced",
        "hopper 64x128 s8 sliced",
    ]
    assert found[0].is_sliced
    short = replace(PROBLEMS["short sum"], M=802816, N=256, K=64)
    assert configs(short, h200)[0].name == "hopper 128x256 s8 sliced"
    small = replace(short, M=32768)  # what is added is in L2
    assert configs(small, h200)[0].name == "hopper 128x256 s8 sliced"
    longer = heavy_codes(50176, 2048, 512)
    sliced = [tile for tile in configs(longer, h200) if tile.is_sliced]
    assert sliced
    assert all(tile.stages >= 2 * steps_of(longer) for tile in sliced)
    for problem in (plain_codes(*LAYER), gated_codes(6304, 3072, 64)):
        assert not any(tile.is_sliced for tile in configs(problem, h200))


def test_the_weight_of_its_tactic_has_its_order():
    workload = int8_gemm(M=6304, N=776, K=768)
    tactic = next(row for row in list_tactics(workload, gpu_named("H200")) if isinstance(row, Tactic))
    (draft,) = tactic.drafts
    run = dict(draft.kernels[0].constants)["RUN"]
    weight = draft.constants[0].make()
    rows = workload.weight if workload.formula.is_transposed else workload.weight.T
    assert draft.runner == "gemm_hopper"
    assert np.array_equal(weight, rows_in_order(rows, run))


def int8_conv(size: int, stride: int) -> Workload:
    base = int8_gemm(N=256)
    pads, strides = (size // 2,) * 4, (stride,) * 2
    formula = Conv(("c", 0), ("c", 1), "w", strides, (1, 1), pads, 1, base.formula.epilogue)
    weight = np.random.default_rng(5).integers(-127, 128, (256, 64, size, size), dtype=np.int8)
    return replace(base, formula=formula, inputs=(facts("int8", 16, 64, 56, 56),), weight=weight)


def test_convolutions_of_single_pixels_are_products():
    h200 = gpu_named("H200")
    for size, stride in ((3, 1), (1, 2)):
        names = [row.name for row in conv2d.list_tactics(int8_conv(size, stride), h200)]
        assert not any("hopper" in name for name in names)
    workload = int8_conv(1, 1)
    tactic = conv2d.list_tactics(workload, h200)[0]
    (draft,) = tactic.drafts
    assert tactic.name.startswith("conv2d hopper")
    assert draft.runner == "hopper_conv2d"
    fixed = dict(draft.kernels[0].constants)
    assert (fixed["N"], fixed["K"], fixed["BLOCK_K"]) == (256, 64, 64)
    assert np.array_equal(draft.constants[0].make(), rows_in_order(workload.weight[:, :, 0, 0], fixed["RUN"]))
