# SPDX-License-Identifier: Apache-2.0
"""What float16 may be too narrow for, in an engine of halves: values are stored as float32, sums not at all.

The numerator of softmax-free attention is one, a sum over all tokens that is divided only afterwards. What
overflows becomes infinite, and NaN soon after; kernels add in float32 anyway: storing is what loses it. So
do libraries that store the sums of a product as halves before its epilogue, which may be the one to make
them small.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from quantrt.plan.program import Program, Step
from quantrt.regions.formula_json import from_json, to_json
from quantrt.regions.region import Conv, ConvTranspose, Gemm
from quantrt.tactics.cuda.tactic import Rejected, Tactic

__all__ = ["HEADROOM_RATIO", "Extremes", "Wide", "find_wide", "told_wide", "with_sums", "without_half_sums"]

FLOAT16_MAX = 65504.0

HEADROOM_RATIO = 8.0
"""Other inputs may reach so many times what samples reach."""

LIBRARIES = ("cudnn", "cublaslt")

Extremes = Mapping[str, tuple[float, float]]
"""The least and the largest number of values, by name."""

TOO_WIDE = "it stores sums in float16, which may be too narrow for them"

_SUMS = "#sums"
"""Behind a region's name, with the number of the operand behind it: the buffer of its sums."""


@dataclass(frozen=True)
class Wide:
    """What halves are too narrow for.

    Attributes:
        values: names of those that are stored as float32.
        sums: regions whose product, before its epilogue, is not to be stored as halves.
    """

    values: frozenset[str] = frozenset()
    sums: frozenset[str] = frozenset()

    def __or__(self, other: Wide) -> Wide:
        return Wide(self.values | other.values, self.sums | other.sums)


def find_wide(extremes: Extremes) -> Wide:
    """What comes within a factor of HEADROOM_RATIO of float16's largest number.

    A value that never exceeds zero is no such: it is a mask, of which only the distance from 0 counts.

    Args:
        extremes: of the buffers of a program in float32, on samples; of sums where it is one `with_sums`.
    """
    limit = FLOAT16_MAX / HEADROOM_RATIO
    values, sums = set(), set()
    for name, (least, most) in extremes.items():
        if max(-least, most) <= limit:
            continue
        region, is_sums, _ = name.partition(_SUMS)
        if is_sums:
            sums.add(region)
        elif most > 0:
            values.add(name)
    return Wide(frozenset(values), frozenset(sums))


def with_sums(program: Program) -> Program:
    """A program of references that shows the sums of its products too, as buffers that nothing reads."""
    return replace(program, steps=tuple(map(_with_sums, program.steps)))


def _with_sums(step: Step) -> Step:
    formula = from_json(step.options["formula"]) if step.runner == "formula" else None
    if not isinstance(formula, Gemm | Conv | ConvTranspose):
        return step
    epilogue = formula.epilogue
    sums = [number for number, operand in enumerate(epilogue.operands) if operand.kind == "accumulator"]
    shown = replace(
        epilogue,
        outputs=(*epilogue.outputs, *sums),
        row_outputs=(*epilogue.row_outputs, *(False for _ in sums)),
    )
    options = {
        **step.options,
        "formula": to_json(replace(formula, epilogue=shown)),
        "outputs": [*step.options["outputs"], *("float32" for _ in sums)],
    }
    buffers = (f"{step.region}{_SUMS}{number}" for number in sums)
    return replace(step, outputs=(*step.outputs, *buffers), options=options)


def without_half_sums(listed: Sequence[Tactic | Rejected]) -> list[Tactic | Rejected]:
    """The tactics of a product of halves, but for those of libraries: these store its sums as halves.

    A graph of cuDNN does not: what is between its operations is float32.
    """
    return [
        Rejected(row.source, row.name, TOO_WIDE) if isinstance(row, Tactic) and _stores_sums(row) else row
        for row in listed
    ]


def _stores_sums(tactic: Tactic) -> bool:
    return tactic.source in LIBRARIES and not any(draft.graphs for draft in tactic.drafts)


def told_wide(wide: Wide) -> list[str]:
    """What is wider than fp16, for the report."""
    told = []
    if wide.values:
        told.append(f"stored in FP32, for fp16 may be too narrow: {_some(wide.values)}")
    if wide.sums:
        told.append(f"computed by no library, which would store too large sums in fp16: {_some(wide.sums)}")
    return told


def _some(names: frozenset[str]) -> str:
    listed = sorted(names)
    return ", ".join(listed[:3]) + (f" and {len(listed) - 3} more" if len(listed) > 3 else "")
