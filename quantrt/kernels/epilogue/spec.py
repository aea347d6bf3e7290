# SPDX-License-Identifier: Apache-2.0
"""What every kernel with an epilogue has in common: its slots for operands and outputs, and their types."""

from __future__ import annotations

from typing import Any, Protocol

from quantrt.kernels.expression.spec import program_of
from quantrt.regions.expression import Expression

__all__ = [
    "ELEMENT_BYTES",
    "MAX_ARGS",
    "MAX_CODE_TERMS",
    "MAX_OUTPUTS",
    "POINTERS",
    "WARP",
    "Finished",
    "epilogue_constants",
    "operand_types",
    "output_types",
    "pitch_constants",
    "why_not_epilogue",
]

MAX_ARGS = 12
MAX_OUTPUTS = 4
"""Slots of a kernel for operands behind the accumulator, and for outputs."""

MAX_CODE_TERMS = (2**31 - 1) // (128 * 127)
"""Products of codes, at most 128 * 127 each, that always fit an int32 sum: 132104."""

WARP = 32

POINTERS = {
    "int8": "*i8",
    "float8_e4m3fn": "*fp8e4nv",
    "float16": "*fp16",
    "bfloat16": "*bf16",
    "float32": "*fp32",
    "bool": "*u8",
}
ELEMENT_BYTES = {"int8": 1, "float8_e4m3fn": 1, "float16": 2, "bfloat16": 2, "float32": 4, "bool": 1}


class Finished(Protocol):
    """Anything with an epilogue behind an accumulator."""

    @property
    def epilogue(self) -> Expression:
        """Operand 0 is the accumulator."""

    @property
    def tensors(self) -> tuple[str, ...]:
        """Element types of its tensor operands."""

    @property
    def outputs(self) -> tuple[str, ...]:
        """Element types of what it stores."""


def why_not_epilogue(problem: Finished, *, accumulators: int = 1) -> str | None:
    """Why no kernel over tiles of rows and columns can compute its epilogue; None when it can.

    Args:
        accumulators: how many of the first operands are sums.
    """
    operands = problem.epilogue.operands
    sums = [number for number, operand in enumerate(operands) if operand.kind == "accumulator"]
    stored = (*problem.tensors, *problem.outputs)
    reasons = (
        (
            problem.epilogue.has_row or any(problem.epilogue.row_outputs),
            "a reduction over rows: no tile has all",
        ),
        (
            sums != list(range(accumulators)),
            "an epilogue whose first operand alone is not the accumulator"
            if accumulators == 1
            else f"an epilogue without {accumulators} accumulators in front",
        ),
        (len(operands) - len(sums) > MAX_ARGS, f"{len(operands) - len(sums)} operands: at most {MAX_ARGS}"),
        (len(problem.outputs) > MAX_OUTPUTS, f"{len(problem.outputs)} outputs: at most {MAX_OUTPUTS}"),
        (any(dtype not in POINTERS for dtype in stored), f"element types of {', '.join(stored)}"),
    )
    return next((reason for is_so, reason in reasons if is_so), None)


def output_types(problem: Finished) -> dict[str, str]:
    """Slot and type of every output."""
    return {f"y{i}_ptr": POINTERS[dtype] for i, dtype in enumerate(problem.outputs)}


def operand_types(problem: Finished) -> dict[str, str]:
    """Slot and type of every operand behind the accumulators."""
    tensors = iter(problem.tensors)
    types = {"scalar": "fp32", "constant": "*fp32"}
    kinds = _kinds(problem)
    return {
        f"arg{i}": POINTERS[next(tensors)] if kind == "tensor" else types[kind]
        for i, kind in enumerate(kinds)
    }


def epilogue_constants(problem: Finished) -> dict[str, Any]:
    """Constants that say what the epilogue computes; 0 for slots that nothing fills."""
    arguments = len(_kinds(problem))
    empty = [f"y{i}_ptr" for i in range(len(problem.outputs), MAX_OUTPUTS)]
    empty += [f"arg{i}" for i in range(arguments, MAX_ARGS)]
    return {
        **dict.fromkeys(empty, 0),
        "KINDS": _kinds(problem),
        "PROGRAM": program_of(problem.epilogue, problem.outputs),
        "OUTPUTS": problem.epilogue.outputs,
    }


def pitch_constants(problem: Finished, pitches: tuple[int, ...]) -> dict[str, tuple[int, ...]]:
    """The constant that says how far rows of tensor operands and of outputs are apart.

    Args:
        pitches: in elements, of the tensors, then of the outputs; empty where rows have no gaps between.

    Returns:
        PITCHES: one for every operand behind the accumulators, and for every output; see
        `kernels.jit.epilogue.pitch_of`.
    """
    of_tensors = iter(pitches)
    operands = [next(of_tensors) if kind == "tensor" else 0 for kind in _kinds(problem)] if pitches else []
    return {"PITCHES": (*operands, *of_tensors)}


def _kinds(problem: Finished) -> tuple[str, ...]:
    """Of every operand behind the accumulators."""
    return tuple(x.kind for x in problem.epilogue.operands if x.kind != "accumulator")
