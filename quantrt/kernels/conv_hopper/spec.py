# SPDX-License-Identifier: Apache-2.0
"""y[images, P, Q, N] = epilogue(conv(x, w)) on compute capability 9.0: what the kernel can do, in tiles.

The rows of a tile are a box of output pixels, so that the copy engine finds what they read of x by itself;
columns, weights and epilogue are those of kernels/gemm_hopper.
"""

from __future__ import annotations

from dataclasses import dataclass

from quantrt.gpu import GpuFacts
from quantrt.kernels.conv2d.spec import ConvProblem
from quantrt.kernels.descriptor import DescriptorType
from quantrt.kernels.epilogue.spec import (
    ELEMENT_BYTES,
    epilogue_constants,
    operand_types,
    output_types,
    pitch_constants,
)
from quantrt.kernels.expression.spec import needs_exact
from quantrt.kernels.gemm_hopper import spec as hopper
from quantrt.kernels.gemm_hopper.pixels import as_product, product_of
from quantrt.kernels.gemm_hopper.spec import ELEMENTS, WARPS, HopperTile
from quantrt.kernels.kernel import KernelSpec, pointers_of

__all__ = ["BoxTile", "channel_block", "kernel_of", "rows_of", "run_of", "taps_of", "why_not"]

MAX_STEP = 8
MAX_BOX = 256
"""Of the copy engine: from one element of a box to the next along an axis, and from its first to behind its
last; CUDA driver API, cuTensorMapEncodeTiled."""

STEP_BYTES = (128, 64, 32)
"""Of a pixel's channels in one stage: periods in which 16-byte pieces of shared memory change places."""

STEP_COST_BYTES = 32
"""What the beginning of a step is worth in bytes of a longer one, about."""


MAX_TENSORS_AHEAD = 2
"""Parts of a tile whose tensors are loaded before its products: places of pixels take registers too."""


@dataclass(frozen=True)
class BoxTile:
    """How the convolution is cut.

    Attributes:
        product: rows and columns of a tile, stages of the ring.
        box: images, lines and columns of the output pixels of a tile, at most product.block_m.
        is_column: a step is of a column of the window; a box is of one image and multiples of 8 columns.
        holds_w: the whole weight stays in shared memory, beside a ring for x alone.
        is_looped: the epilogue is a loop over columns, of which the machine code is short.
    """

    product: HopperTile
    box: tuple[int, int, int]
    is_column: bool = False
    holds_w: bool = False
    is_looped: bool = False

    @property
    def name(self) -> str:
        """As tactics are named: "windows 1x9x14 128x128 s6"."""
        name = f"windows {'x'.join(map(str, self.box))} {self.product.name.removeprefix('hopper ')}"
        return name + " columns" * self.is_column + " held" * self.holds_w + " looped" * self.is_looped


def why_not(problem: ConvProblem, device: GpuFacts) -> str | None:
    """Why the kernel cannot compute the problem on the device, in one phrase; None when it can."""
    reasons = (
        (product_of(problem) is not None, "a product of single pixels"),
        (problem.dtype not in ("int8", "float16", "bfloat16"), f"no convolution of {problem.dtype}"),
        (problem.pad_code != 0 and any(problem.pads), "a padding other than zeros"),
        (min(problem.pads) < 0, "a negative padding"),
        (max(problem.strides) > MAX_STEP, f"strides of more than {MAX_STEP}"),
    )
    found = next((reason for is_so, reason in reasons if is_so), None)
    return found or hopper.why_not(as_product(problem), device)


def channel_block(problem: ConvProblem) -> int:
    """Channels of a step: as many as make the fewest and fullest steps."""
    size = ELEMENT_BYTES[problem.dtype]
    chosen = min(STEP_BYTES, key=lambda step: -(-problem.C * size // step) * (step + STEP_COST_BYTES))
    return chosen // size


def run_of(problem: ConvProblem, tile: BoxTile) -> int:
    """Columns of y that one thread has side by side: fewer where parts of a tile are finished in a loop."""
    run = hopper.run_of(as_product(problem), tile.product)
    return min(run, hopper.LARGE_RUN) if tile.is_looped else run


def taps_of(problem: ConvProblem, tile: BoxTile) -> int:
    """Of one step."""
    return problem.R if tile.is_column else 1


def rows_of(problem: ConvProblem, tile: BoxTile) -> int:
    """Of x in a stage: those of a tile, and behind them what further taps of a step read."""
    return tile.product.block_m + (taps_of(problem, tile) - 1) * problem.dilations[0] * tile.box[2]


def kernel_of(
    problem: ConvProblem,
    tile: BoxTile,
    *,
    phases: tuple[int, int] = (1, 1),
    leads: tuple[int, int] = (0, 0),
) -> KernelSpec:
    """The kernel for a problem that `why_not` has nothing against. Images, H and W do not enter it.

    Args:
        phases, leads: of a convolution of repeated pixels: the problem is a phase of it; see kernels/phases.
    """
    cut, product = tile.product, as_product(problem)
    block_k = channel_block(problem)
    k_bytes = block_k * ELEMENT_BYTES[problem.dtype]
    element = ELEMENTS[problem.dtype]
    block_rows = 1 << (rows_of(problem, tile) - 1).bit_length()  # in name: the copy is of a box
    constants_ahead, tensors_ahead = hopper.ahead_of(product, cut)
    pointers = {**output_types(problem), **operand_types(problem)}
    fixed = {
        "N": problem.N,
        "R": problem.R,
        "S": problem.S,
        "C": problem.C,
        "STRIDES": problem.strides,
        "PADS": problem.pads[:2],
        "DILATIONS": problem.dilations,
        **epilogue_constants(problem),
        **pitch_constants(problem, problem.pitches),
        "RUN": run_of(problem, tile),
        "BOX": tile.box,
        "TAPS": taps_of(problem, tile),
        "HOLDS_W": tile.holds_w,
        "BLOCK_M": cut.block_m,
        "BLOCK_N": cut.block_n,
        "BLOCK_K": block_k,
        "STAGES": cut.stages,
        "GROUP_M": cut.group_m,
        "CONSTANTS_AHEAD": constants_ahead,
        "TENSORS_AHEAD": min(tensors_ahead, MAX_TENSORS_AHEAD),
        "IS_LOOPED": tile.is_looped,
        "NEIGHBOURS": cut.neighbours,
        "PHASES": phases,
        "LEADS": leads,
    }
    return KernelSpec(
        family="conv_hopper",
        function="conv_hopper",
        signature=(
            ("x_desc", str(DescriptorType(element, (1, 1, block_rows, block_k), k_bytes))),
            ("w_desc", str(DescriptorType(element, (cut.block_n, block_k), k_bytes))),
            *pointers.items(),
            *((name, "i32") for name in ("images", "P", "Q")),
        ),
        aligned=pointers_of(pointers),
        constants=tuple(fixed.items()),
        num_warps=WARPS,
        num_stages=cut.stages,
        is_exact=needs_exact(problem.epilogue, problem.outputs),
    )
