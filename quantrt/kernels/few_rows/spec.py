# SPDX-License-Identifier: Apache-2.0
"""y[M, N] = epilogue(x[M, K] @ w[N, K]^T) of few rows on compute capability 9.0: what the kernel can do.

With few rows a product is latency: the launch, the first loads, the last stores. So the weights of a tile's
first blocks, often all of them, are asked for before what makes x is done.

The rows can be normalized on the way: y = epilogue(norm(x) @ w^T), norm(x) = (x - mean) / sqrt(var + epsilon)
over each row, or x / sqrt(mean of squares + epsilon); a norm's scale is part of w, its shift of the epilogue.

What is rounded: w with the norm's scale in it, in place of the normalized x. The sums that the mean is
multiplied by are of the rounded w, so that it takes off just what the mean added to the product; what float32
loses there is 2^-24 of |mean|, where storing x in 16 bits lost 2^-11 of it.

Statistics are in float32, of d = x - x[0]: var = mean(d^2) - mean(d)^2. mean(d)^2 = (x[0] - mean)^2 is one
of the K terms whose sum is K * var, so it is at most that: whatever the values are, var is off by about
K * 2^-24 of itself and no more. RMS norms have no difference to lose anything in.
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
from quantrt.kernels.expression.spec import needs_exact
from quantrt.kernels.gemm import spec as gemm
from quantrt.kernels.gemm.spec import GemmProblem
from quantrt.kernels.gemm_hopper import spec as hopper
from quantrt.kernels.gemm_hopper.spec import ELEMENTS, HopperTile
from quantrt.kernels.kernel import KernelSpec, pointers_of

__all__ = [
    "CAPABILITY",
    "LAYER",
    "MAX_TERMS",
    "RMS",
    "FewRowsProblem",
    "kernel_of",
    "stage_bytes",
    "steps_of",
    "why_not",
]

CAPABILITY = hopper.CAPABILITY

WARPS = 4
BLOCK_K_BYTES = 128
"""Of a row in one stage: the widest swizzle."""

LAYER, RMS = "layer", "rms"
NORMED = ("float16", "bfloat16")

MAX_TERMS = 4096
"""Of a row that is normalized: the variance is within 2^-12 of itself, less than storing 16 bits rounds."""


@dataclass(frozen=True)
class FewRowsProblem:
    """One product with its epilogue, at the shape it is timed at.

    Attributes:
        product: x are the rows before the norm.
        norm: LAYER or RMS; empty where rows are multiplied as they are.
        epsilon: added to the variance, or to the mean of squares.
    """

    product: GemmProblem
    norm: str = ""
    epsilon: float = 0.0


def why_not(problem: FewRowsProblem, device: GpuFacts) -> str | None:
    """Why the kernel cannot compute the problem on the device, in one phrase; None when it can."""
    product = problem.product
    if problem.norm and product.dtype not in NORMED:
        return f"norms are part of products of {' and '.join(NORMED)}, not of {product.dtype}"
    if problem.norm and product.K > MAX_TERMS:
        return (
            f"sums of squares over rows of {product.K} elements are not precise enough: at most {MAX_TERMS}"
        )
    return hopper.why_not(product, device)


def steps_of(problem: FewRowsProblem) -> int:
    """Blocks of K."""
    return -(-problem.product.K * ELEMENT_BYTES[problem.product.dtype] // BLOCK_K_BYTES)


def stage_bytes(tile: HopperTile) -> int:
    """Of one block of x and one of w."""
    return (tile.block_m + tile.block_n) * BLOCK_K_BYTES


def kernel_of(problem: FewRowsProblem, tile: HopperTile) -> KernelSpec:
    """The kernel for a problem that `why_not` has nothing against. M does not enter it."""
    product = problem.product
    element, kind = ELEMENTS[product.dtype], POINTERS[product.dtype]
    block_k = BLOCK_K_BYTES // ELEMENT_BYTES[product.dtype]
    of_norm = {"x_ptr": kind, "sums_ptr": POINTERS["float32"]} if problem.norm else {}
    pointers = {**of_norm, **output_types(product), **operand_types(product)}
    stride = (("stride_xm", "i32"),) if problem.norm else ()
    fixed = {
        **({} if problem.norm else {"x_ptr": 0, "sums_ptr": 0, "stride_xm": 0}),
        "STRIDE_UNIT": product.stride_unit,
        "N": product.N,
        "K": product.K,
        "GATED": product.is_gated,
        "NORM": problem.norm,
        "EPSILON": problem.epsilon,
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
        family="few_rows",
        function="few_rows",
        signature=(
            ("x_desc", str(DescriptorType(element, (tile.block_m, block_k), BLOCK_K_BYTES))),
            ("w_desc", str(DescriptorType(element, (tile.block_n, block_k), BLOCK_K_BYTES))),
            *pointers.items(),
            ("M", "i32"),
            *stride,
        ),
        aligned=pointers_of(pointers),
        constants=tuple(fixed.items()),
        num_warps=WARPS,
        num_stages=tile.stages,
        is_exact=not problem.norm and needs_exact(product.epilogue, product.outputs),
    )
