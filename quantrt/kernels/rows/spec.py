# SPDX-License-Identifier: Apache-2.0
"""outputs = expression(operands) over rows and columns: what the kernel can do, and its variants.

A variant fixes how each operand is read, how many outer dimensions number the rows, and the tile; sizes and
strides are arguments. LONG_ROWS, or TILES, with operands of any strides over three outer dimensions takes
whatever there is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from quantrt.kernels.expression.spec import needs_exact, program_of
from quantrt.kernels.kernel import KernelSpec
from quantrt.kernels.live_rows import ALL_ROWS
from quantrt.kernels.rows.walk import Walk
from quantrt.regions.expression import Expression

__all__ = [
    "MAX_OUTER",
    "RowsProblem",
    "Table",
    "TileConfig",
    "Variant",
    "arguments_of",
    "fits",
    "has_rows",
    "kernel_of",
    "why_not",
]

MAX_ARGS = 12
MAX_OUTPUTS = 4
"""Slots of the kernel for operands and for outputs."""

MAX_OUTER = 3
MAX_INT32 = 2**31 - 1
ALIGNMENT = 16
"""Of pointers in bytes, and of sizes and strides in elements, for loads of 16 bytes."""

SCALAR, ELEMENT, ROW, COLUMN, BLOCK, STRIDED = range(6)
"""How an operand is read: a float argument; one element of memory; one element for each row; the same
neighbouring elements for all rows; rows of neighbouring elements; by its strides, whatever they are."""

LOOKUP = 6
LOOKUP_ELEMENT = LOOKUP + MAX_ARGS
"""And rows of a table that operand i numbers: LOOKUP + i, or LOOKUP_ELEMENT + i where they have one element.
Its first stride is that of the rows, its second one how many there are."""

TILES, WHOLE_ROWS, LONG_ROWS, HELD_ROWS = range(4)

POINTERS = {
    "bool": "*u8",
    "uint8": "*u8",
    "int8": "*i8",
    "float8_e4m3fn": "*fp8e4nv",
    "int16": "*i16",
    "int32": "*i32",
    "int64": "*i64",
    "float16": "*fp16",
    "bfloat16": "*bf16",
    "float32": "*fp32",
    "float64": "*fp64",
}
TABLES = ("int8", "float16", "bfloat16", "float32")
STORED = ("bool", "int8", "float8_e4m3fn", "float16", "bfloat16", "float32")


@dataclass(frozen=True)
class Table:
    """The constant of a lookup."""

    dtype: str
    rows: int
    columns: int


@dataclass(frozen=True)
class RowsProblem:
    """One expression at the shapes it is timed at.

    Attributes:
        tensors: element type of each tensor operand.
        outputs: element type of each output.
        walk: over the operands that are no scalars, in their order; of a lookup over one row of its table.
        tables: of each lookup, by its operand's number.
    """

    expression: Expression
    tensors: tuple[str, ...]
    outputs: tuple[str, ...]
    walk: Walk
    tables: Mapping[int, Table] = field(default_factory=dict)

    @property
    def memory_types(self) -> tuple[str, ...]:
        """Element types of the operands that are no scalars, in their order."""
        tensors = iter(self.tensors)
        operands = enumerate(self.expression.operands)
        of_tables = {number: table.dtype for number, table in self.tables.items()}
        return tuple(
            next(tensors) if x.kind == "tensor" else of_tables.get(number, "float32")
            for number, x in operands
            if x.kind != "scalar"
        )

    @property
    def has_rows(self) -> bool:
        """Whether rows are the last axis, for a reduction or for outputs of one element per row."""
        return has_rows(self.expression)


@dataclass(frozen=True)
class TileConfig:
    """What one program does at a time.

    Attributes:
        rows, columns: powers of 2.
        programs: that share out the tiles, one behind the other; 0 is one for each tile.
        parts: in which rows are held, of `columns` each.
        is_ahead: a program that shares out tiles loads the next one before it computes and stores one.
    """

    rows: int
    columns: int
    num_warps: int
    programs: int = 0
    parts: int = 1
    is_ahead: bool = False

    @property
    def name(self) -> str:
        """As tactics are named: "2x1024 w4", "2x1024 w4 p1056", "8x5x256 w8"."""
        shared = f" p{self.programs}" + " ahead" * self.is_ahead if self.programs else ""
        held = f"{self.parts}x" if self.parts > 1 else ""
        return f"{self.rows}x{held}{self.columns} w{self.num_warps}{shared}"


@dataclass(frozen=True)
class Variant:
    """What of the walk is fixed in a kernel.

    Attributes:
        kinds: of each operand, SCALAR to STRIDED.
        outer: dimensions that number the rows, 0 to 3.
        aligned: names of the arguments that must be multiples of 16.
    """

    kinds: tuple[int, ...]
    outer: int
    mode: int
    tile: TileConfig
    aligned: frozenset[str] = frozenset()


def has_rows(expression: Expression) -> bool:
    """Whether an expression needs the last axis for itself."""
    return expression.has_row or any(expression.row_outputs) or bool(expression.lookups)


def why_not(problem: RowsProblem) -> str | None:
    """Why no kernel can compute the problem, in one phrase; None when one can."""
    operands = problem.expression.operands
    unread = [dtype for dtype in problem.tensors if dtype not in POINTERS]
    unlisted = [table.dtype for table in problem.tables.values() if table.dtype not in TABLES]
    unstored = [dtype for dtype in problem.outputs if dtype not in STORED]
    reasons = (
        (any(x.kind == "accumulator" for x in operands), "an operand that is an accumulator"),
        (len(operands) > MAX_ARGS, f"{len(operands)} operands: at most {MAX_ARGS}"),
        (len(problem.outputs) > MAX_OUTPUTS, f"{len(problem.outputs)} outputs: at most {MAX_OUTPUTS}"),
        (bool(unread), f"operands of {', '.join(unread)}"),
        (bool(unlisted), f"tables of {', '.join(unlisted)}"),
        (bool(unstored), f"outputs of {', '.join(unstored)}"),
    )
    return next((reason for is_so, reason in reasons if is_so), None)


def kernel_of(problem: RowsProblem, variant: Variant) -> KernelSpec:
    """The kernel of one variant. The shapes of the problem do not enter it."""
    expression = problem.expression
    program = program_of(expression, problem.outputs)
    types = {f"y{i}": POINTERS[dtype] for i, dtype in enumerate(problem.outputs)} | _slots(problem, variant)
    types |= dict.fromkeys(_sizes(variant), "i32")
    reductions = tuple(i for i, x in enumerate(expression.instructions) if x.op.startswith("row_"))
    unused = {name: 1 if name == "R" else 0 for name in _ARGUMENTS if name not in types}
    fixed: dict[str, Any] = {
        **unused,
        **ALL_ROWS,
        "PROGRAM": program,
        "REDUCTIONS": reductions,
        "KINDS": variant.kinds,
        "OUTPUTS": expression.outputs,
        "ROW_OUTPUTS": tuple(int(is_row) for is_row in expression.row_outputs),
        "OUTER": variant.outer,
        "MODE": variant.mode,
        "BLOCK_R": variant.tile.rows,
        "BLOCK_C": variant.tile.columns,
        "PROGRAMS": variant.tile.programs,
        "AHEAD": variant.tile.is_ahead,
        "PARTS": variant.tile.parts,
    }
    return KernelSpec(
        family="rows",
        function="map_rows",
        signature=tuple((name, types[name]) for name in _ARGUMENTS if name in types),
        aligned=variant.aligned & set(types),
        constants=tuple(fixed.items()),
        num_warps=variant.tile.num_warps,
        num_stages=1,
        is_exact=needs_exact(expression, problem.outputs),
    )


def arguments_of(
    expression: Expression, walk: Walk, outer: int, tables: Mapping[int, Table]
) -> dict[str, int]:
    """Sizes and strides of a walk by the names of the kernel's arguments, over `outer` >= its dimensions.

    Args:
        tables: of each lookup, by its operand's number.
    """
    missing = outer - len(walk.outer)
    sizes = (1,) * missing + walk.outer
    values = {"R": walk.rows, "C": walk.columns}
    values |= {f"D{i}": sizes[i] for i in range(1, outer)}
    slots = [i for i, x in enumerate(expression.operands) if x.kind != "scalar"]
    for slot, strides in zip(slots, walk.strides, strict=True):
        values |= {f"x{slot}_s{missing + i}": stride for i, stride in enumerate(strides[:-1])}
        values |= {f"x{slot}_s{i}": 0 for i in range(missing)}
        values[f"x{slot}_sc"] = strides[-1]
    for slot, table in tables.items():
        values |= {f"x{slot}_s0": table.columns, f"x{slot}_s1": table.rows}
    return values


def fits(constants: Mapping[str, Any], walk: Walk) -> bool:
    """Whether the variant with these constants of its KernelSpec is right for a walk; alignment aside."""
    if len(walk.outer) > constants["OUTER"]:
        return False
    held = constants["BLOCK_C"] * constants.get("PARTS", 1)
    if constants["MODE"] in (WHOLE_ROWS, HELD_ROWS) and walk.columns > held:
        return False
    kinds = [kind for kind in constants["KINDS"] if kind != SCALAR]
    pairs = zip(kinds, walk.strides, strict=True)
    return all(_can_read(kind, strides, walk.columns) for kind, strides in pairs)


def _can_read(kind: int, strides: Sequence[int], columns: int) -> bool:
    if kind >= LOOKUP:
        return True
    is_fixed = kind in (ROW, BLOCK, STRIDED) or not any(strides[:-1])
    if kind == STRIDED or columns == 1:
        return is_fixed
    return is_fixed and strides[-1] == (1 if kind in (COLUMN, BLOCK) else 0)


def _slots(problem: RowsProblem, variant: Variant) -> dict[str, str]:
    """Types of the arguments of the operands."""
    stored = iter(problem.memory_types)
    types: dict[str, str] = {}
    for i, kind in enumerate(variant.kinds):
        if kind == SCALAR:
            types[f"x{i}"] = "fp32"
            continue
        types[f"x{i}"] = POINTERS[next(stored)]
        if kind >= LOOKUP:
            types |= {f"x{i}_s0": "i32", f"x{i}_s1": "i32"}
        if kind in (ROW, BLOCK, STRIDED):
            types |= {f"x{i}_s{j}": "i32" for j in range(variant.outer)}
        if kind == STRIDED:
            types[f"x{i}_sc"] = "i32"
    return types


def _sizes(variant: Variant) -> list[str]:
    names = [f"D{i}" for i in range(1, variant.outer)]
    return [*names, "R", "C"] if variant.outer else ["C"]


def _all_arguments() -> list[str]:
    """Names of the kernel's arguments that are not constants by themselves, in its order."""
    names = [f"y{i}" for i in range(MAX_OUTPUTS)]
    for i in range(MAX_ARGS):
        names += [f"x{i}", *(f"x{i}_s{j}" for j in range(MAX_OUTER)), f"x{i}_sc"]
    return [*names, "D1", "D2", "R", "C"]


_ARGUMENTS = tuple(_all_arguments())
"""Of every kernel of rows; a network has thousands that are listed."""
