# SPDX-License-Identifier: Apache-2.0
"""y[M, N] = epilogue(norm(x)[M, K] @ w[N, K]^T) of floats of 16 bits: what the kernel can do.

norm(x) = (x - mean) / sqrt(var + epsilon) over each row, of an RMS norm x / sqrt(mean of squares + epsilon);
its scale is part of w, its shift of the epilogue. With few rows a norm of its own is all latency: a launch,
one load, one store, and the product's first load of what was stored.

What is rounded: w with the norm's scale in it, in place of the normalized x. The sums that the mean is
multiplied by are of the rounded w, so that it takes off just what the mean added to the product; what float32
loses there is 2^-24 of |mean|, where storing x in 16 bits lost 2^-11 of it.

Statistics are in float32, of d = x - x[0]: var = mean(d^2) - mean(d)^2. mean(d)^2 = (x[0] - mean)^2 is one of
the K terms whose sum is K * var, so it is at most that: whatever the values are, var is off by about K * 2^-24
of itself and no more. RMS norms have no difference to lose anything in.
"""

from __future__ import annotations

from dataclasses import dataclass

from quantrt.gpu import GpuFacts
from quantrt.kernels.descriptor import DescriptorType
from quantrt.kernels.epilogue.spec import (
    ELEMENT_BYTES,
    POINTERS,
    epilogue_constants,
    operand_types,
    output_types,
    pitch_constants,
)
from quantrt.kernels.gemm import spec as gemm
from quantrt.kernels.gemm.spec import GemmProblem
from quantrt.kernels.gemm_hopper import spec as hopper
from quantrt.kernels.gemm_hopper.spec import ELEMENTS, HopperTile
from quantrt.kernels.kernel import KernelSpec, pointers_of

__all__ = ["CAPABILITY", "MAX_TERMS", "NormedProblem", "kernel_of", "why_not"]

PRODUCTS = ("float16", "bfloat16")

CAPABILITY = 90

WARPS = 4
BLOCK_K_BYTES = 128
"""Of a row in one stage: the widest swizzle."""

MAX_TERMS = 4096
"""Of a row: the variance is within 2^-12 of itself, less than what storing a result in 16 bits rounds."""


@dataclass(frozen=True)
class NormedProblem:
    """One product of normalized rows with its epilogue, at the shape it is timed at.

    Attributes:
        product: x are the rows before the norm.
        epsilon: added to the variance, or to the mean of squares.
        is_centred: the mean is taken off; it is not by an RMS norm.
    """

    product: GemmProblem
    epsilon: float
    is_centred: bool


def why_not(problem: NormedProblem, device: GpuFacts) -> str | None:
    """Why the kernel cannot compute the problem on the device, in one phrase; None when it can."""
    product = problem.product
    if product.dtype not in PRODUCTS:
        return f"norms are folded into products of {' and '.join(PRODUCTS)}, not of {product.dtype}"
    if product.is_gated:
        return "norms are not folded into gates"
    if product.K > MAX_TERMS:
        return (
            f"sums of squares over rows of {product.K} elements are not precise enough: at most {MAX_TERMS}"
        )
    return hopper.why_not(product, device)


def kernel_of(problem: NormedProblem, tile: HopperTile) -> KernelSpec:
    """The kernel for a problem that `why_not` has nothing against. M does not enter it."""
    product = problem.product
    element, kind = ELEMENTS[product.dtype], POINTERS[product.dtype]
    block_k = BLOCK_K_BYTES // ELEMENT_BYTES[product.dtype]
    pointers = {
        "x_ptr": kind,
        "sums_ptr": POINTERS["float32"],
        **output_types(product),
        **operand_types(product),
    }
    fixed = {
        "STRIDE_UNIT": product.stride_unit,
        "N": product.N,
        "K": product.K,
        "EPSILON": problem.epsilon,
        "CENTRED": problem.is_centred,
        **epilogue_constants(product),
        "KINDS": gemm.kinds_of(product),
        **pitch_constants(product, product.pitches),
        "RUN": hopper.run_of(product, tile),
        "BLOCK_M": tile.block_m,
        "BLOCK_N": tile.block_n,
        "BLOCK_K": block_k,
        "STAGES": tile.stages,
        "GROUP_M": tile.group_m,
    }
    return KernelSpec(
        family="normed_gemm",
        function="normed_gemm",
        signature=(
            ("x_desc", str(DescriptorType(element, (tile.block_m, block_k), BLOCK_K_BYTES))),
            ("w_desc", str(DescriptorType(element, (tile.block_n, block_k), BLOCK_K_BYTES))),
            *pointers.items(),
            ("M", "i32"),
            ("stride_xm", "i32"),
        ),
        aligned=pointers_of(pointers),
        constants=tuple(fixed.items()),
        num_warps=WARPS,
        num_stages=tile.stages,
        is_exact=False,
    )
