# SPDX-License-Identifier: Apache-2.0
"""What `benchmarks.cuda_attention8` times: shapes of attention, and kernels of ours in their forms."""

__all__ = ["FLOATS", "SHAPES", "Case", "Shape", "cases_of", "mask_size"]

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from quantrt.gpu import GpuFacts
from quantrt.kernels.attention.spec import AttentionProblem
from quantrt.kernels.attention_coded import tiles as portable
from quantrt.kernels.attention_coded.spec import CodedAttention
from quantrt.kernels.attention_hopper import spec as hopper_kernel
from quantrt.kernels.attention_hopper.spec import HopperAttention
from quantrt.regions.region import Attention
from quantrt.tactics.cuda.attention import coded, fused, hopper
from quantrt.tactics.cuda.tactic import Tactic, TensorFacts, Workload

FLOATS = ("floats", "floats")
"""What products in fp16 are of."""
OTHER_BYTES = 1024
"""Of shared memory, beside tiles."""


@dataclass(frozen=True)
class Shape:
    """One attention.

    Attributes:
        mask: what is added to the scores, in float16: "keys", a number for every key; "padding", minus
            infinity for keys behind a sample's length; "rows", a number for every query and key; or nothing.
        is_portable: whether the portable kernel is timed beside that for compute capability 9.0.
    """

    B: int
    H: int
    S: int
    T: int
    D: int
    is_causal: bool = False
    outliers: bool = False
    mask: str = ""
    is_portable: bool = False

    @property
    def name(self) -> str:
        """Such as "2x10x4096x64"."""
        marks = (" causal" if self.is_causal else "") + (" outliers" if self.outliers else "")
        marks += f" {self.mask}" if self.mask else ""
        keys = f"/{self.T}" if self.T != self.S else ""
        return f"{self.B}x{self.H}x{self.S}{keys}x{self.D}{marks}"

    @property
    def flops(self) -> int:
        """Of both products."""
        return 4 * self.B * self.H * self.S * self.T * self.D // (2 if self.is_causal else 1)


SHAPES = (
    Shape(2, 10, 4096, 4096, 64, is_portable=True),
    Shape(1, 16, 8192, 8192, 128),
    Shape(1, 16, 4096, 4096, 128, is_portable=True),
    Shape(2, 10, 8192, 8192, 64),
    Shape(1, 10, 16384, 16384, 64),
    Shape(2, 20, 1024, 1024, 64),
    Shape(2, 16, 1024, 1024, 128),
    Shape(1, 8, 16384, 16384, 128),
    Shape(2, 10, 4096, 77, 64),
    Shape(1, 24, 4608, 4608, 128, outliers=True),
    Shape(2, 10, 4001, 4001, 64, outliers=True),
    Shape(1, 16, 8192, 8192, 128, is_causal=True),
    Shape(32, 16, 384, 384, 64),
    Shape(2, 10, 4096, 4096, 64, mask="keys", is_portable=True),
    Shape(8, 16, 1024, 1024, 64, mask="padding", is_portable=True),
    Shape(2, 10, 4096, 4096, 64, mask="rows", is_portable=True),
    Shape(1, 16, 4096, 4096, 128, mask="keys", is_portable=True),
    Shape(1, 8, 4096, 4096, 256, is_portable=True),
    Shape(2, 8, 4096, 4096, 160, is_portable=True),
)

PORTABLE = {
    64: ((128, 64, 4, 3), (128, 64, 8, 3), (128, 128, 8, 3), (64, 64, 4, 3), (64, 128, 4, 3)),
    128: ((128, 64, 8, 3), (128, 128, 8, 3), (128, 128, 8, 2), (64, 64, 4, 3), (128, 64, 8, 2)),
    256: ((64, 64, 8, 2), (64, 64, 8, 3), (128, 64, 8, 2), (128, 32, 8, 2), (64, 128, 8, 2)),
}
"""Queries and keys of a step, warps and stages of the portable kernel, by the columns of a tile."""
FLOAT_TILES = 3
"""Of our kernel in fp16, the most promising."""


@dataclass(frozen=True)
class Case:
    """A tactic, and what it multiplies q with k, and weights with v, as."""

    tactic: Tactic
    kinds: tuple[str, str]


def forms() -> Iterator[HopperAttention]:
    """What is timed, the most promising first."""
    how = HopperAttention
    for lines in (1, 2, 0):
        yield how("floats", "fp8", 128, 4, lines=lines)
        yield how("floats", "fp8", 128, 3, lines=lines)
        yield how("int8", "fp8", 128, 4, lines=lines)
    yield how("int8", "fp8", 128, 4, lines=2, turns=True)
    yield how("fp8", "fp8", 128, 4)
    yield how("int8", "floats", 128, 3)
    yield how("floats", "floats", 128, 3)
    yield how("floats", "floats", 64, 4)


def portable_forms(columns: int) -> Iterator[CodedAttention]:
    """What is timed of the portable kernel."""
    for scores, values in (("int8", "fp8"), ("int8", "floats"), ("floats", "fp8"), ("fp8", "fp8")):
        tiles = PORTABLE[max(64, columns)]
        for tile in tiles if scores == "int8" else tiles[1:2]:
            yield CodedAttention(scores, values, *tile)


def cases_of(shapes: Sequence[Shape], names: Sequence[str], gpu: GpuFacts) -> dict[Shape, dict[str, Case]]:
    """Every form of every shape, by name."""
    cases: dict[Shape, dict[str, Case]] = {}
    for shape in shapes:
        found = {case.tactic.name: case for case in _all_cases(shape, gpu)}
        cases[shape] = {
            name: case for name, case in found.items() if not names or any(part in name for part in names)
        }
    return cases


def _all_cases(shape: Shape, gpu: GpuFacts) -> Iterator[Case]:
    """What can compute a shape: by the kernel for 9.0, by the portable one, and by that for fp16."""
    workload = _workload(shape)
    formula = workload.formula
    assert isinstance(formula, Attention)
    problem = fused.problem_of(workload, formula)
    assert isinstance(problem, AttentionProblem)
    if hopper_kernel.why_not(problem, gpu) is None:
        for how in forms():
            kinds = (how.scores, how.values)
            is_legal = problem.mask == "none" or kinds == FLOATS
            if is_legal and hopper_kernel.shared_bytes(problem, how) + OTHER_BYTES <= gpu.shared_memory_bytes:
                yield Case(hopper.tactic_of(formula, problem, how), kinds)
    if shape.is_portable:
        for one in portable_forms(problem.block_d):
            if portable.shared_bytes(problem, one) + OTHER_BYTES <= gpu.shared_memory_bytes:
                yield Case(coded.tactic_of(formula, problem, one), (one.scores, one.values))
        for tactic in fused.list_tactics(workload, formula, None, gpu)[:FLOAT_TILES]:
            assert isinstance(tactic, Tactic)
            yield Case(tactic, FLOATS)


def _workload(shape: Shape) -> Workload:
    formula = Attention(
        (("n", 0), ("n", 1), ("n", 2)),
        1 / math.sqrt(shape.D),
        is_transposed=False,
        has_mask=bool(shape.mask),
        is_causal=shape.is_causal,
    )
    step = 3 * shape.H * shape.D
    sizes = [(shape.B, shape.H, length, shape.D) for length in (shape.S, shape.T, shape.T)]
    facts = [TensorFacts("float16", size, (size[2] * step, shape.D, step, 1)) for size in sizes]
    if shape.mask:
        size = mask_size(shape)
        rows = size[2]
        facts.append(TensorFacts("float16", size, (rows * shape.T, rows * shape.T, shape.T, 1)))
    return Workload("attention", formula, tuple(facts), ("float16",), None, {})


def mask_size(shape: Shape) -> tuple[int, int, int, int]:
    return (1, 1, shape.S, shape.T) if shape.mask == "rows" else (shape.B, 1, 1, shape.T)
