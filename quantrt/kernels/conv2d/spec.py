# SPDX-License-Identifier: Apache-2.0
"""y[images, P, Q, N] = epilogue(conv(x[images, H, W, C], w[N, R, S, C])), no groups: what the kernel can do.

int8 codes accumulate in int32, exactly; float16 in float32. The epilogue reads the accumulator as float32.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from quantrt.gpu import GpuFacts
from quantrt.kernels.epilogue.spec import (
    ELEMENT_BYTES,
    MAX_CODE_TERMS,
    POINTERS,
    WARP,
    epilogue_constants,
    operand_types,
    output_types,
    pitch_constants,
    why_not_epilogue,
)
from quantrt.kernels.expression.spec import needs_exact
from quantrt.kernels.kernel import KernelSpec, pointers_of
from quantrt.regions.expression import Expression

__all__ = [
    "ConvProblem",
    "TileConfig",
    "is_early",
    "kernel_of",
    "kernel_types",
    "pad_kernel_of",
    "padded_channels",
    "size_arguments",
    "why_not",
]

MAX_WHOLE_ACCUMULATORS = 64
"""Of a thread; with more the epilogue runs in two parts: as a whole it spills, compiled for 9.0."""

MAX_EARLY_STEPS = 2
MAX_EARLY_BYTES = 128
"""Turns of the loop over a sum, and bytes of a thread."""

CHANNEL_UNIT = 4
MAX_PADDED = 16
PAD_BLOCK = 2048
"""Channels are padded to a multiple of 4 where there are at most 16; elements of one program that does it."""

MAX_OFFSET = 2**31 - 1
MAX_BLOCK = 256


@dataclass(frozen=True)
class ConvProblem:
    """One convolution with its epilogue, at the shape it is timed at; a 1-D one has H = R = 1.

    Attributes:
        images, H, W: of x; the kernel takes any others too.
        C: channels of x.
        N, R, S: of the weight [N, R, S, C].
        strides, dilations: vertical, horizontal.
        pads: top, left, bottom, right.
        dtype: of x and w: int8, float16 or bfloat16.
        epilogue: operand 0 is the accumulator.
        tensors: element type of each tensor operand of the epilogue.
        outputs: element type of each output.
        pad_code: what the padding is of, where there is any and x are codes.
        x_pitch: elements from one pixel of x to the next; 0 where there is no gap between.
        pitches: the same of the tensors, then of the outputs; empty where none has gaps.
        repeats: how often every line and every column of x is repeated before it is convolved; other kernels
            than this family's know none.
    """

    images: int
    H: int
    W: int
    C: int
    N: int
    R: int
    S: int
    strides: tuple[int, int]
    pads: tuple[int, int, int, int]
    dilations: tuple[int, int]
    dtype: str
    epilogue: Expression
    tensors: tuple[str, ...]
    outputs: tuple[str, ...]
    pad_code: int = 0
    x_pitch: int = 0
    pitches: tuple[int, ...] = ()
    repeats: tuple[int, int] = (1, 1)

    @property
    def has_gaps(self) -> bool:
        """Whether pixels of x, of a tensor or of an output are further apart than their channels."""
        return bool(self.x_pitch or self.pitches)

    @property
    def depth(self) -> int:
        """Products in one sum."""
        return self.R * self.S * self.C

    @cached_property
    def output(self) -> tuple[int, int, int]:
        """Images, height and width."""
        top, left, bottom, right = self.pads
        H, W = self.H * self.repeats[0], self.W * self.repeats[1]
        height = _extent(H + top + bottom, self.R, self.strides[0], self.dilations[0])
        width = _extent(W + left + right, self.S, self.strides[1], self.dilations[1])
        return self.images, height, width

    @property
    def pixels(self) -> int:
        """Of the output: rows of the product."""
        images, height, width = self.output
        return images * height * width


@dataclass(frozen=True)
class TileConfig:
    """How the product is cut.

    Attributes:
        block_m, block_n, block_k: one program's tile, and how much of a sum it adds at once, in elements.
        is_packed: what is added at once may span taps, (r, s, c) as one axis; otherwise it is of one tap.
    """

    block_m: int
    block_n: int
    block_k: int
    num_warps: int
    num_stages: int
    is_packed: bool = False

    @property
    def name(self) -> str:
        """As tactics are named: "128x256x64 w8 s3"."""
        packed = " packed" if self.is_packed else ""
        return f"{self.block_m}x{self.block_n}x{self.block_k} w{self.num_warps} s{self.num_stages}{packed}"

    @property
    def accumulators(self) -> int:
        """Of one thread."""
        return self.block_m * self.block_n // (WARP * self.num_warps)

    def shared_bytes(self, dtype: str) -> int:
        """Of the pipeline's buffers: one of x and one of w for every stage."""
        return self.num_stages * (self.block_m + self.block_n) * self.block_k * ELEMENT_BYTES[dtype]


def why_not(problem: ConvProblem, device: GpuFacts) -> str | None:
    """Why the kernel cannot compute the problem on the device, in one phrase; None when it can."""
    reasons = (
        (problem.dtype not in ("int8", "float16", "bfloat16"), f"no product of {problem.dtype}"),
        (
            device.capability < 80,
            f"Triton compiles no {problem.dtype} tensor-core products for compute capability "
            f"{device.capability}: 80 is the least",
        ),
        (
            problem.dtype == "int8" and problem.depth > MAX_CODE_TERMS,
            f"int32 sums of {problem.depth} products of codes can overflow: at most {MAX_CODE_TERMS}",
        ),
        (problem.N < 1 or problem.depth < 1, "an empty weight"),
        (
            max(problem.N, problem.depth, *problem.pitches) * MAX_BLOCK > MAX_OFFSET
            or _reach(problem) > MAX_OFFSET,
            "offsets in a tile beyond 32 bits",
        ),
    )
    return next((reason for is_so, reason in reasons if is_so), None) or why_not_epilogue(problem)


def kernel_of(
    problem: ConvProblem,
    config: TileConfig,
    *,
    phases: tuple[int, int] = (1, 1),
    leads: tuple[int, int] = (0, 0),
) -> KernelSpec:
    """The kernel for a problem that `why_not` has nothing against. Images, H and W do not enter it.

    Args:
        phases, leads: of a convolution of repeated pixels: the problem is a phase of it; see kernels/phases.
    """
    types = kernel_types(problem)
    fixed = {
        "N": problem.N,
        "R": problem.R,
        "S": problem.S,
        "C": problem.C,
        "STRIDES": problem.strides,
        "PADS": problem.pads,
        "PAD_CODE": problem.pad_code,
        "DILATIONS": problem.dilations,
        **epilogue_constants(problem),
        "X_PITCH": problem.x_pitch or problem.C,
        **pitch_constants(problem, problem.pitches),
        "REPEATS": problem.repeats,
        "PHASES": phases,
        "LEADS": leads,
        "IS_PACKED": config.is_packed,
        "PARTS": 2 if config.accumulators > MAX_WHOLE_ACCUMULATORS else 1,
        "IS_EARLY": is_early(problem, config),
        "BLOCK_M": config.block_m,
        "BLOCK_N": config.block_n,
        "BLOCK_K": config.block_k,
    }
    return KernelSpec(
        family="conv2d",
        function="conv2d",
        signature=(*types.items(), *size_arguments()),
        aligned=pointers_of(types),
        constants=tuple(fixed.items()),
        num_warps=config.num_warps,
        num_stages=config.num_stages,
        is_exact=needs_exact(problem.epilogue, problem.outputs),
    )


def is_early(problem: ConvProblem, config: TileConfig) -> bool:
    """Whether the epilogue's operands are loaded before the products, so that both are waited for at once.

    Where sums are short, for they stay in registers meanwhile.
    """
    steps = problem.R * problem.S * -(-problem.C // config.block_k)
    held_bytes = config.accumulators * sum(ELEMENT_BYTES[dtype] for dtype in problem.tensors)
    is_small = config.accumulators <= MAX_WHOLE_ACCUMULATORS and 0 < held_bytes <= MAX_EARLY_BYTES
    return is_small and steps <= MAX_EARLY_STEPS


def padded_channels(problem: ConvProblem) -> int | None:
    """How many channels to pad x to, so that copies of them run ahead; None where there is no need.

    Only for few channels, as in a first layer: there every tap would be loaded element by element.
    """
    is_needed = problem.C % CHANNEL_UNIT != 0 and problem.C <= MAX_PADDED and problem.dtype in POINTERS
    return -(-problem.C // CHANNEL_UNIT) * CHANNEL_UNIT if is_needed else None


def pad_kernel_of(problem: ConvProblem, channels: int) -> KernelSpec:
    """The kernel that copies x with zeros behind its channels, up to `channels`, channels last."""
    pointer = POINTERS[problem.dtype]
    sizes = ("M", "HW", "stride_xn", "stride_xc", "stride_xp")
    block_c = 1 << (channels - 1).bit_length()
    return KernelSpec(
        family="conv2d",
        function="pad_channels",
        signature=(("x_ptr", pointer), ("y_ptr", pointer), *((name, "i32") for name in sizes)),
        aligned=frozenset({"y_ptr"}),
        constants=(
            ("C", problem.C),
            ("PADDED", channels),
            ("BLOCK_M", PAD_BLOCK // block_c),
            ("BLOCK_C", block_c),
        ),
        num_warps=4,
        num_stages=1,
        is_exact=True,
    )


def kernel_types(problem: ConvProblem) -> dict[str, str]:
    """Arguments before the sizes, with their types: x, w, outputs, the epilogue's operands."""
    return {
        "x_ptr": POINTERS[problem.dtype],
        "w_ptr": POINTERS[problem.dtype],
        **output_types(problem),
        **operand_types(problem),
    }


def size_arguments() -> tuple[tuple[str, str], ...]:
    """The last arguments: output pixels, height and width of x and of y."""
    return tuple((name, "i32") for name in ("M", "H", "W", "P", "Q"))


def _extent(padded: int, taps: int, stride: int, dilation: int) -> int:
    """Elements of the output along an axis."""
    return max(0, (padded - dilation * (taps - 1) - 1) // stride + 1)


def _reach(problem: ConvProblem) -> int:
    """Elements from a window's first to its last, at most: what one 32-bit offset spans."""
    whole = problem.H * problem.W if problem.repeats != (1, 1) else 0  # offsets begin at the image there
    lines = problem.R * problem.dilations[0] * (problem.W + problem.S * problem.dilations[1])
    return (whole + lines) * (problem.x_pitch or problem.C)
