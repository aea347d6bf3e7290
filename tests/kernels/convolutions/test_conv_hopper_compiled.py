# SPDX-License-Identifier: Apache-2.0
"""The convolution in boxes as machine code for 9.0, the boxes, and when it is tried."""

import ast
import math
import re
import subprocess
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from triton import knobs

from quantrt.gpu import gpu_named
from quantrt.kernels.compile_all import CompileFailure
from quantrt.kernels.conv2d.spec import ConvProblem
from quantrt.kernels.conv_hopper import triton_kernel
from quantrt.kernels.conv_hopper.spec import BoxTile, channel_block, kernel_of, why_not
from quantrt.kernels.conv_hopper.tiles import box_of, column_box_of, configs
from quantrt.kernels.gemm_hopper.spec import HopperTile, rows_in_order
from quantrt.tactics.cuda.convolutions.conv2d import list_tactics
from quantrt.tactics.cuda.convolutions.weights import rows_of_windows
from quantrt.tactics.cuda.tactic import Tactic
from tests.kernels.convolutions.test_conv2d_compiled import problem
from tests.kernels.products.test_gemm_hopper_compiled import SHARED_BYTES, int8_conv

H200 = gpu_named("H200")

PROBLEMS = {
    "codes": problem("int8"),
    "few channels": replace(problem("int8"), C=64, N=64, H=56, W=56),
    "columns of windows": replace(problem("int8"), C=64, N=64, H=80, W=80),
    "stride": replace(problem("int8"), C=320, N=320, strides=(2, 2)),
    "floats": problem("float16"),
    "columns left over": replace(problem("int8"), N=200),
    "in a loop": replace(problem("int8"), H=28, W=28),
    "two share a multiprocessor": replace(problem("int8"), C=64, N=64, H=56, W=56, pitches=(64, 256)),
    "slices of channels": replace(problem("int8"), x_pitch=1024, pitches=(512, 768)),
}


def tile_of(name: str, one: ConvProblem) -> BoxTile:
    product, is_held = HopperTile(128, min(one.N, 128), 6), one.N <= 64
    if name == "in a loop":
        return BoxTile(HopperTile(64, 128, 6), box_of(one, 64), is_looped=True)
    if name == "two share a multiprocessor":
        shared = [tile for tile in configs(one, H200) if tile.product.neighbours == 2]
        return shared[0]
    if name == "columns of windows":
        return BoxTile(product, column_box_of(one, 128), is_column=True, holds_w=is_held)
    return BoxTile(product, box_of(one, 128), holds_w=is_held)


@pytest.fixture(scope="module")
def compiled(compile_kernels):
    specs = {name: kernel_of(one, tile_of(name, one)) for name, one in PROBLEMS.items()}
    results = compile_kernels(list(specs.values()), (90,))
    return {name: results[spec] for name, spec in specs.items()}


@pytest.mark.parametrize("name", PROBLEMS)
def test_machine_code(compiled, name, tmp_path: Path):
    kernel = compiled[name]
    assert not isinstance(kernel, CompileFailure), kernel.reason
    assert kernel.shared_bytes[90] <= SHARED_BYTES
    assert kernel.spills == 0
    path = tmp_path / "kernel.cubin"
    path.write_bytes(kernel.cubins[90])
    command = [knobs.nvidia.nvdisasm.path, "-c", str(path)]
    text = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    used = set(re.findall(r"\b(?:[A-Z]*MMA|UTMALDG|USETMAXREG|WARPGROUP|STL|LDL|STS|STG)\b[\w.]*", text))
    product = "IGMMA" if PROBLEMS[name].dtype == "int8" else "HGMMA"
    assert any(one.startswith(product) for one in used)
    assert {"UTMALDG.4D", "UTMALDG.2D"} <= used
    assert any(one.startswith("USETMAXREG") for one in used)
    assert not any(one.startswith(("STL", "LDL")) for one in used)
    if name != "columns left over":
        assert used & {"STG.E.64", "STG.E.128"}
        assert not any(re.fullmatch(r"STG\.E(\.U8|\.U16)?", one) for one in used)


def test_no_variable_of_a_loop_is_another_ones_name():
    """Triton 3.6 does not carry a variable through a loop that is set to another one there."""
    tree = ast.parse(Path(triton_kernel.__file__).read_text(encoding="utf-8"))
    loops = [node for node in ast.walk(tree) if isinstance(node, ast.For)]
    running = [loop for loop in loops if "static_range" not in ast.unparse(loop.iter)]
    assert running
    for loop in running:
        for node in ast.walk(loop):
            if isinstance(node, ast.Assign):
                assert not isinstance(node.value, ast.Name), ast.unparse(node)


def test_what_it_is_not_for():
    codes = PROBLEMS["codes"]
    assert why_not(codes, H200) is None
    assert "9" in why_not(codes, gpu_named("A100"))
    assert "single pixels" in why_not(replace(codes, R=1, S=1, pads=(0,) * 4), H200)
    assert why_not(replace(codes, R=1, S=1, pads=(0,) * 4, strides=(2, 2)), H200) is None
    assert "multiples of 16 bytes" in why_not(replace(codes, C=24), H200)
    assert why_not(replace(PROBLEMS["floats"], C=24), H200) is None
    assert "padding" in why_not(replace(codes, pad_code=3), H200)
    assert why_not(replace(codes, pad_code=3, pads=(0,) * 4), H200) is None
    assert "padding" in why_not(replace(codes, pads=(0, 0, -1, 0)), H200)
    assert "strides" in why_not(replace(codes, strides=(9, 1)), H200)
    assert "float32" in why_not(replace(codes, dtype="float32"), H200)


@pytest.mark.parametrize(
    ("size", "images", "stride", "tiles"),
    [
        (56, 32, 1, 784),
        (28, 256, 1, 1568),
        (14, 256, 1, 392),
        (7, 256, 1, 128),
        (14, 1, 1, 2),
        (300, 1, 2, 180),
    ],
)
def test_boxes_cover_the_output_with_hardly_a_pixel_more(size, images, stride, tiles):
    shape = replace(PROBLEMS["codes"], images=images, H=size, W=size, strides=(stride, stride))
    box = box_of(shape, 128)
    assert math.prod(box) <= 128
    assert max(box[1:]) * stride <= 256
    assert math.prod(math.ceil(n / m) for n, m in zip(shape.output, box, strict=True)) == tiles


def test_columns_of_windows_are_copied_where_lines_follow_each_other():
    few = PROBLEMS["few channels"]
    assert column_box_of(few, 128) == (1, 16, 8)
    assert column_box_of(few, 64) == (1, 8, 8)
    assert column_box_of(replace(few, H=28, W=28), 128) == (1, 4, 32)
    assert column_box_of(replace(few, strides=(1, 2)), 128) == (1, 8, 16)
    for other in (replace(few, strides=(2, 2)), replace(few, R=1, pads=(0, 1, 0, 1))):
        assert column_box_of(other, 128) is None
    assert any(tile.is_column for tile in configs(few, H200))


def test_steps_are_few_and_full():
    for channels, block in ((64, 64), (128, 128), (192, 64), (640, 128), (16, 32), (96, 128)):
        assert channel_block(replace(PROBLEMS["codes"], C=channels)) == block
    assert channel_block(replace(PROBLEMS["floats"], C=64)) == 64


def test_it_is_tried_first_where_it_fills_the_device():
    workload = int8_conv(3, 1)
    names = [row.name for row in list_tactics(workload, H200)]
    assert names[0].startswith("conv2d windows")
    assert any(not name.startswith("conv2d windows") for name in names[:8])
    older = [row.name for row in list_tactics(workload, gpu_named("A100"))]
    assert not any("windows" in name for name in older)
    assert configs(replace(PROBLEMS["codes"], images=1), H200) == ()


def test_weights_of_few_channels_are_held():
    def is_held(channels: int, columns: int) -> bool:
        return configs(replace(PROBLEMS["few channels"], C=channels, N=columns), H200)[0].holds_w

    assert is_held(64, 64)
    assert is_held(64, 128)
    assert not is_held(256, 128)  # more than shared memory
    assert not is_held(64, 192)  # more than one tile of columns


def test_the_weight_of_its_tactic_has_its_order():
    workload = int8_conv(3, 1)
    tactic = next(row for row in list_tactics(workload, H200) if isinstance(row, Tactic))
    (draft,) = tactic.drafts
    run = dict(draft.kernels[0].constants)["RUN"]
    rows = np.moveaxis(workload.weight, 1, -1).reshape(len(workload.weight), -1)
    assert np.array_equal(draft.constants[0].make(), rows_in_order(rows, run))
    assert draft.constants[0] == rows_of_windows("w", workload.weight, "int8", run)
