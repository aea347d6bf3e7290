# SPDX-License-Identifier: Apache-2.0
"""Kernels that add up parts of sums, and what they are for: more programs than a product has tiles.

A tile of `SplitConfig` is one of the product's own; only blocks that fill every part are taken.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from quantrt.kernels.conv2d import spec as conv2d
from quantrt.kernels.conv2d.spec import ConvProblem
from quantrt.kernels.epilogue.spec import (
    POINTERS,
    epilogue_constants,
    operand_types,
    output_types,
    pitch_constants,
)
from quantrt.kernels.expression.spec import needs_exact
from quantrt.kernels.gemm import spec as gemm
from quantrt.kernels.gemm.spec import GemmProblem
from quantrt.kernels.kernel import KernelSpec, pointers_of

__all__ = ["SplitConfig", "add_kernel_of", "parts_bytes", "parts_kernel_of", "rows_of"]

ADD_COLUMNS = 128
ADD_ELEMENTS = 1024
ADD_WARPS = 4
"""Tiles of the kernel that adds: small ones, for it only waits for memory. 8 elements for a thread."""

PART_BYTES = 4
_PART_POINTERS = {
    "int8": "*i32",
    "float8_e4m3fn": "*fp32",
    "float16": "*fp32",
    "bfloat16": "*fp32",
    "float32": "*fp32",
}


@dataclass(frozen=True)
class SplitConfig:
    """How the product is cut.

    Attributes:
        tile: of the product's own kernel.
        splits: parts of each sum.
    """

    tile: conv2d.TileConfig | gemm.TileConfig
    splits: int

    @property
    def name(self) -> str:
        """As tactics are named: "64x64x128 w4 s4 split 4"."""
        return f"{self.tile.name} split {self.splits}"


def parts_bytes(problem: ConvProblem | GemmProblem, config: SplitConfig) -> int:
    """Of all parts together."""
    return rows_of(problem) * problem.N * config.splits * PART_BYTES


def rows_of(problem: ConvProblem | GemmProblem) -> int:
    """Rows of the product."""
    return problem.pixels if isinstance(problem, ConvProblem) else problem.M


def parts_kernel_of(problem: ConvProblem | GemmProblem, config: SplitConfig) -> KernelSpec:
    """The kernel that makes the parts."""
    is_conv = isinstance(problem, ConvProblem)
    product = POINTERS[problem.dtype]
    types = {"x_ptr": product, "w_ptr": product, "parts_ptr": _PART_POINTERS[problem.dtype]}
    sizes = ("M", "H", "W", "P", "Q") if is_conv else ("M", "stride_xm")
    fixed = {
        "N": problem.N,
        **_shape(problem, config),
        "SPLITS": config.splits,
        "BLOCK_M": config.tile.block_m,
        "BLOCK_N": config.tile.block_n,
        "BLOCK_K": config.tile.block_k,
    }
    return KernelSpec(
        family="split_k",
        function="conv2d_parts" if is_conv else "gemm_parts",
        signature=(*types.items(), *((name, "i32") for name in sizes)),
        aligned=frozenset(types),
        constants=tuple(fixed.items()),
        num_warps=config.tile.num_warps,
        num_stages=config.tile.num_stages,
        is_exact=True,
    )


def _shape(problem: ConvProblem | GemmProblem, config: SplitConfig) -> dict[str, Any]:
    """Constants that one kind of product has."""
    if isinstance(problem, GemmProblem):
        assert isinstance(config.tile, gemm.TileConfig)
        return {"K": problem.K, "STRIDE_UNIT": problem.stride_unit, "GROUP_M": config.tile.group_m}
    return {
        "R": problem.R,
        "S": problem.S,
        "C": problem.C,
        "STRIDES": problem.strides,
        "PADS": problem.pads,
        "PAD_CODE": problem.pad_code,
        "DILATIONS": problem.dilations,
        "X_PITCH": problem.x_pitch or problem.C,
    }


def add_kernel_of(problem: ConvProblem | GemmProblem, config: SplitConfig) -> KernelSpec:
    """The kernel that adds the parts and computes the epilogue."""
    terms = problem.depth if isinstance(problem, ConvProblem) else problem.K
    types = {
        "parts_ptr": _PART_POINTERS[problem.dtype],
        **output_types(problem),
        **operand_types(problem),
    }
    block_n = min(ADD_COLUMNS, max(16, 1 << (problem.N - 1).bit_length()))
    fixed = {
        "N": problem.N,
        "TERMS": terms,
        **epilogue_constants(problem),
        **({"KINDS": gemm.kinds_of(problem)} if isinstance(problem, GemmProblem) else {}),
        **pitch_constants(problem, problem.pitches),
        "SPLITS": config.splits,
        "BLOCK_M": ADD_ELEMENTS // block_n,
        "BLOCK_N": block_n,
    }
    return KernelSpec(
        family="split_k",
        function="add_parts",
        signature=(*types.items(), ("M", "i32")),
        aligned=pointers_of(types),
        constants=tuple(fixed.items()),
        num_warps=ADD_WARPS,
        num_stages=1,
        is_exact=needs_exact(problem.epilogue, problem.outputs),
    )
