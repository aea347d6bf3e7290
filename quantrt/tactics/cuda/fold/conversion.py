# SPDX-License-Identifier: Apache-2.0
"""The conversion of a model's input as part of the kernel that folds its pixels for the first layer."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from quantrt.kernels.compile_all import CompileFailure
from quantrt.kernels.epilogue.spec import POINTERS
from quantrt.kernels.fold_pixels.spec import folding_of, kernel_of, why_not_before
from quantrt.kernels.kernel import CompiledKernel, KernelSpec
from quantrt.kernels.pooled_conv.spec import with_left
from quantrt.regions.region import Conv, PooledConv, Rows
from quantrt.tactics.cuda.convolutions.conv2d import FOLDED
from quantrt.tactics.cuda.convolutions.of_workload import problem_of
from quantrt.tactics.cuda.convolutions.pooled_conv import POOLED
from quantrt.tactics.cuda.program.assemble import Item
from quantrt.tactics.cuda.program.frame import Frame
from quantrt.tactics.cuda.tactic import Tactic, TensorFacts
from quantrt.tactics.cuda.tuning.choices import Choices

__all__ = ["fold_conversions"]

Compile = Callable[[Sequence[KernelSpec]], Mapping[KernelSpec, CompiledKernel | CompileFailure]]


@dataclass(frozen=True)
class _Pair:
    """A conversion, and the only region that reads what it makes."""

    conversion: Item
    reader: Item


def fold_conversions(
    frame: Frame, choices: Choices, facts: Mapping[str, TensorFacts], compile_kernels: Compile
) -> tuple[Frame, Choices]:
    """The frame without the conversions that a first layer's own kernel does as it folds pixels.

    Args:
        facts: of every buffer.
        compile_kernels: for the GPU that the engine is for.
    """
    for pair in _pairs(frame):
        conversion, reader = pair.conversion, pair.reader
        choice = choices.by_region.get(reader.region)
        made = None if choice is None else _fused(pair, choice.tactic, facts)
        if choice is None or made is None:
            continue
        tactic, spec = made
        kernel = compile_kernels([spec])[spec]
        if isinstance(kernel, CompileFailure):
            continue
        fused = replace(reader, inputs=(*conversion.inputs, *reader.inputs[1:]))
        items = [fused if item is reader else item for item in frame.items if item is not conversion]
        frame = replace(frame, items=tuple(items))
        others = {name: row for name, row in choices.by_region.items() if name != conversion.region}
        choices = replace(
            choices,
            by_region={**others, reader.region: replace(choice, tactic=tactic)},
            kernels={**choices.kernels, spec: kernel},
        )
    return frame, choices


def _pairs(frame: Frame) -> list[_Pair]:
    """Conversions of the model's inputs that one convolution alone reads, as its x."""
    inputs = {name for name, _ in frame.program.inputs}
    kept = {buffer for _, buffer, _ in frame.program.outputs}
    found = []
    for item in frame.items:
        is_conversion = item.lowered is not None and isinstance(item.lowered.formula, Rows)
        if (
            not is_conversion
            or len(item.inputs) != 1
            or item.inputs[0] not in inputs
            or len(item.outputs) != 1
        ):
            continue
        (made,) = item.outputs
        readers = [other for other in frame.items if made in other.inputs]
        if made not in kept and len(readers) == 1 and readers[0].inputs.count(made) == 1:
            found += [_Pair(item, readers[0])] if readers[0].inputs[0] == made else []
    return found


def _fused(pair: _Pair, tactic: Tactic, facts: Mapping[str, TensorFacts]) -> tuple[Tactic, KernelSpec] | None:
    """The reader's tactic with the conversion in it, and its new kernel; None where that cannot be."""
    before, reader = pair.conversion.lowered, pair.reader.lowered
    (draft, *others) = tactic.drafts
    if before is None or reader is None or others or draft.runner not in (FOLDED, POOLED):
        return None
    formula = reader.formula.convolution if isinstance(reader.formula, PooledConv) else reader.formula
    if not isinstance(formula, Conv) or not isinstance(before.formula, Rows) or reader.weight is None:
        return None
    expression, dtype = before.formula.expression, facts[pair.conversion.inputs[0]].dtype
    if why_not_before(expression) or dtype not in POINTERS:
        return None
    workload = reader.workload([facts[buffer] for buffer in pair.reader.inputs])
    problem = problem_of(workload, formula, reader.weight)
    folding = folding_of(problem)
    if folding is None:
        return None
    problem = with_left(problem, folding) if draft.runner == POOLED else problem
    spec = kernel_of(problem, folding, dtype=dtype, before=expression)
    numbers = [operand.value for operand in expression.operands[1:]]
    draft = replace(draft, kernels=(draft.kernels[0], spec), options={**draft.options, "before": numbers})
    return replace(tactic, drafts=(draft,)), spec
