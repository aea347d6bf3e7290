# SPDX-License-Identifier: Apache-2.0
"""y[n, h R + r, w S + s, c] = epilogue(sum over k of x[n, h, w, k] w[r, s, c, k]): every pixel becomes R x S.

A transposed convolution whose windows do not overlap, as in the upward half of a U-Net, is a product of
[n h w, k] and [r s c, k] whose columns are pixels of their own. All S C columns of one r lie side by side in
the channels-last result, W times in a row, so tiles of the product are stored where they belong.
"""

from __future__ import annotations

from dataclasses import dataclass

from quantrt.gpu import GpuFacts
from quantrt.kernels.epilogue.spec import (
    POINTERS,
    epilogue_constants,
    operand_types,
    output_types,
    pitch_constants,
)
from quantrt.kernels.expression.spec import needs_exact
from quantrt.kernels.gemm import spec as gemm
from quantrt.kernels.gemm import tiles as gemm_tiles
from quantrt.kernels.kernel import KernelSpec, pointers_of
from quantrt.regions.expression import Expression

__all__ = ["SpreadProblem", "TileConfig", "configs", "kernel_of", "why_not"]

TileConfig = gemm.TileConfig

FLOATS_AND_CODES = ("int8", "float16", "bfloat16", "float32")
MAX_OFFSET = 2**31 - 1


@dataclass(frozen=True)
class SpreadProblem:
    """One such transposed convolution with its epilogue; a 1-D one has H = R = 1.

    Attributes:
        pixels: of x, of all images.
        K, C: channels of x and of the result.
        R, S: of the kernel, and strides.
        dtype: of x and w.
        tensors, outputs: element types of the epilogue's tensor operands and results.
        pitches: elements from one pixel to the next of the tensors, then of the outputs; empty where none has
            gaps.
    """

    pixels: int
    K: int
    C: int
    R: int
    S: int
    dtype: str
    epilogue: Expression
    tensors: tuple[str, ...]
    outputs: tuple[str, ...]
    pitches: tuple[int, ...] = ()

    @property
    def product(self) -> gemm.GemmProblem:
        """A product of as many tiles."""
        return gemm.GemmProblem(
            M=self.pixels * self.R,
            N=self.S * self.C,
            K=self.K,
            dtype=self.dtype,
            stride_unit=1,
            epilogue=self.epilogue,
            tensors=self.tensors,
            outputs=self.outputs,
        )


def why_not(problem: SpreadProblem, device: GpuFacts) -> str | None:
    """Why the kernel cannot compute the problem on the device, in one phrase; None when it can."""
    reasons = (
        (problem.dtype not in FLOATS_AND_CODES, f"no product of {problem.dtype}"),
        (
            problem.R * problem.S * problem.C * problem.K > MAX_OFFSET,
            "offsets in the weight beyond 32 bits",
        ),
    )
    found = next((reason for is_so, reason in reasons if is_so), None)
    return found or gemm.why_not(problem.product, device)


def configs(problem: SpreadProblem, device: GpuFacts) -> tuple[TileConfig, ...]:
    """Tiles of the product, the most promising first."""
    return gemm_tiles.configs(problem.product, device)


def kernel_of(problem: SpreadProblem, config: TileConfig) -> KernelSpec:
    """The kernel for a problem that `why_not` has nothing against. The pixels do not enter it."""
    types = {
        "x_ptr": POINTERS[problem.dtype],
        "w_ptr": POINTERS[problem.dtype],
        **output_types(problem),
        **operand_types(problem),
    }
    fixed = {
        "K": problem.K,
        "C": problem.C,
        "R": problem.R,
        "S": problem.S,
        **epilogue_constants(problem),
        **pitch_constants(problem, problem.pitches),
        "BLOCK_M": config.block_m,
        "BLOCK_N": config.block_n,
        "BLOCK_K": config.block_k,
    }
    return KernelSpec(
        family="conv_transpose",
        function="spread",
        signature=(*types.items(), ("M", "i32"), ("W", "i32")),
        aligned=pointers_of(types),
        constants=tuple(fixed.items()),
        num_warps=config.num_warps,
        num_stages=config.num_stages,
        is_exact=needs_exact(problem.epilogue, problem.outputs),
    )
