# SPDX-License-Identifier: Apache-2.0
"""Norms that the products behind them compute themselves, where that is measured faster.

With few rows a norm of its own is latency: it waits for the sum before it, and the products wait for it. It
is folded where products of floats alone read it, and all of them with it: what they take then is held against
what the norm and they take apart, and the whole program against the one without.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch

from quantrt.gpu import GpuFacts
from quantrt.kernels.few_rows.spec import CAPABILITY
from quantrt.regions.region import Gemm, Mismatch, NormedGemm, Rows
from quantrt.tactics.cuda.assemble import Item
from quantrt.tactics.cuda.choices import Choice, Choices
from quantrt.tactics.cuda.epilogues import shifted_accumulator, split_bias
from quantrt.tactics.cuda.frame import Frame
from quantrt.tactics.cuda.known_norm import KnownNorm, norm_of
from quantrt.tactics.cuda.prune import REFERENCE
from quantrt.tactics.cuda.tactic import TensorFacts, Workload
from quantrt.tactics.cuda.whole_programs import Tuned, hold_against
from quantrt.tactics.cuda.workloads import Lowered

__all__ = ["Fold", "find_folds", "fold_norms", "why_not_together"]

MAX_ROWS = 1024
"""With more, a norm is no longer latency alone, and every tile of columns would compute it anew."""

FLOATS = ("float16", "bfloat16")
MEASURED = ("timed", "cached")
PATTERN = "norm in product"
_SHIFT = "norm shift"
_FOLDED = ", norm folded"


@dataclass(frozen=True)
class Fold:
    """A norm, and the products that read it.

    Attributes:
        folded: the products as they read the norm's input.
        workloads: theirs, in regions of other names.
    """

    norm: Item
    readers: tuple[Item, ...]
    folded: tuple[Item, ...]
    workloads: tuple[Workload, ...]


def find_folds(
    frame: Frame, facts: Mapping[str, TensorFacts], gpu: GpuFacts, coded: Collection[tuple[str, int]]
) -> list[Fold]:
    """Every norm that could be folded, with all of its readers; none on a GPU that has no kernel for it.

    Args:
        facts: of every buffer.
        coded: edges of weights that are codes, which a norm's scale would make floats in the file.
    """
    kept = {buffer for _, buffer, _ in frame.program.outputs} | frame.places.keys()
    found: list[Fold] = []
    for item in frame.items if gpu.capability == CAPABILITY else ():
        norm = None if kept.intersection(item.outputs) else _norm_of(item, facts)
        if norm is None:
            continue
        readers = [other for other in frame.items if item.outputs[0] in other.inputs]
        if readers and all(_is_product_of(other, item.outputs[0], facts, coded) for other in readers):
            folded = tuple(_folded(norm, item, reader) for reader in readers)
            found.append(Fold(item, tuple(readers), folded, tuple(_workload(x, facts) for x in folded)))
    return found


def fold_norms(
    frame: Frame,
    choices: Choices,
    folds: Sequence[Fold],
    inputs: Mapping[str, np.ndarray],
    device: torch.device | None,
) -> tuple[Frame, Choices, tuple[Mismatch, ...]]:
    """The frame and the choices with the norms folded that make the whole program faster; of others, why not.

    Equal ones are folded together.

    Args:
        choices: of what is folded too; that is gone from the result.
        inputs: one batch of samples.
        device: None for a GPU that is not here.
    """
    told = choices.by_region
    added = {workload.region for fold in folds for workload in fold.workloads}
    apart = {region: choice for region, choice in told.items() if region not in added}
    tuned = frame, _with(choices, apart)
    mismatches: list[Mismatch] = []
    for group in _equal(folds, told):
        reason = next(filter(None, (_why_not(fold, told) for fold in group)), "")
        if not reason:
            other = _folded_program(tuned, group, told)
            reason, cache = hold_against(tuned, other, inputs, device)
            kept_frame, kept = tuned if reason else other
            tuned = kept_frame, replace(kept, cache=cache)
        mismatches += [Mismatch(PATTERN, reason, fold.norm.region) for fold in group if reason]
    return *tuned, tuple(mismatches)


def _equal(folds: Sequence[Fold], told: Mapping[str, Choice]) -> list[list[Fold]]:
    """Those of equal work, in the order in which they first occur."""
    groups: dict[tuple[str, ...], list[Fold]] = {}
    for fold in folds:
        key = tuple(told[workload.region].key for workload in fold.workloads)
        groups.setdefault(key, []).append(fold)
    return list(groups.values())


def _folded_program(tuned: Tuned, group: Sequence[Fold], told: Mapping[str, Choice]) -> Tuned:
    """A program with some more norms folded."""
    frame, choices = tuned
    by_region = dict(choices.by_region)
    changed: dict[str, Item | None] = {}
    for fold in group:
        del by_region[fold.norm.region]
        changed[fold.norm.region] = None
        for reader, item in zip(fold.readers, fold.folded, strict=True):
            by_region[reader.region] = told[item.region]
            changed[reader.region] = replace(item, region=reader.region)
    items = tuple(found for item in frame.items if (found := changed.get(item.region, item)) is not None)
    return replace(frame, items=items), _with(choices, by_region)


def _with(choices: Choices, by_region: Mapping[str, Choice]) -> Choices:
    """Others, of which all kernels are among those of the choices."""
    return replace(choices, by_region=by_region)


def _why_not(fold: Fold, told: Mapping[str, Choice]) -> str:
    return why_not_together(
        [told[workload.region] for workload in fold.workloads],
        [told[item.region] for item in (fold.norm, *fold.readers)],
    )


def why_not_together(together: Sequence[Choice], apart: Sequence[Choice]) -> str:
    """Why what is measured of both speaks against it; empty where it speaks for it."""
    if any(choice.tactic.name == REFERENCE for choice in together):
        return "no kernel that computes both is right here"
    if any(choice.origin not in MEASURED for choice in (*together, *apart)):
        return "not timed"
    together_us, apart_us = (sum(choice.median_us or 0.0 for choice in x) for x in (together, apart))
    if together_us >= apart_us:
        return f"slower on this GPU: {together_us:.1f} us together, {apart_us:.1f} us apart"
    return ""


def _norm_of(item: Item, facts: Mapping[str, TensorFacts]) -> KnownNorm | None:
    """The norm that an item is: of few rows, from floats of 16 bits to the same."""
    lowered = item.lowered
    if lowered is None or not isinstance(lowered.formula, Rows) or len(item.inputs) != 1 or item.live:
        return None
    x = facts.get(item.inputs[0])
    if x is None or x.dtype not in FLOATS or lowered.types != (x.dtype,) or len(x.shape) < 2:
        return None
    if not 0 < math.prod(x.shape[:-1]) <= MAX_ROWS:
        return None
    return norm_of(lowered.formula.expression, lowered.constants or {}, x.shape[-1])


def _is_product_of(
    item: Item, buffer: str, facts: Mapping[str, TensorFacts], coded: Collection[tuple[str, int]]
) -> bool:
    """Whether an item multiplies a buffer by a weight in floats, and reads it for nothing else."""
    lowered = item.lowered
    if lowered is None or not isinstance(lowered.formula, Gemm) or lowered.weight is None:
        return False
    is_x = item.inputs[0] == buffer and item.inputs.count(buffer) == 1 and not item.live
    is_float = lowered.formula.w not in coded and lowered.weight.dtype.kind == "f"
    return is_x and is_float and not lowered.formula.is_gated and facts[buffer].dtype in FLOATS


def _folded(norm: KnownNorm, item: Item, reader: Item) -> Item:
    """A product of normalized rows that reads what the norm reads."""
    lowered = reader.lowered
    assert lowered is not None and isinstance(lowered.formula, Gemm) and lowered.weight is not None
    is_transposed = lowered.formula.is_transposed
    weight, constants = lowered.weight, dict(lowered.constants or {})
    formula, axis = lowered.formula, 1 if is_transposed else 0
    if norm.shift is not None:
        shift = np.tensordot(norm.shift.astype(np.float64), weight.astype(np.float64), (0, axis))
        formula, constants = _shifted(formula, constants, shift)
    if norm.scale is not None:
        weight = weight * (norm.scale if is_transposed else norm.scale[:, None]).astype(weight.dtype)
    fused = replace(
        lowered,
        region=replace(lowered.region, name=lowered.region.name + _FOLDED),
        formula=NormedGemm(formula, norm.epsilon, norm.is_centred),
        weight=weight,
        constants=constants,
    )
    return replace(
        reader, region=fused.region.name, inputs=(item.inputs[0], *reader.inputs[1:]), lowered=fused
    )


def _shifted(
    formula: Gemm, constants: dict[str, np.ndarray], shift: np.ndarray
) -> tuple[Gemm, dict[str, np.ndarray]]:
    """The epilogue of sums that lack a shift: in the bias where there is one."""
    bias = split_bias(formula.epilogue).bias
    if bias and sum(operand.name == bias for operand in formula.epilogue.operands) == 1:
        whole = np.broadcast_to(constants[bias].reshape(-1), shift.shape) + shift
        return formula, {**constants, bias: whole.astype(np.float32)}
    epilogue = shifted_accumulator(formula.epilogue, _SHIFT)
    return replace(formula, epilogue=epilogue), {**constants, _SHIFT: shift.astype(np.float32)}


def _workload(item: Item, facts: Mapping[str, TensorFacts]) -> Workload:
    assert isinstance(item.lowered, Lowered)
    return item.lowered.workload([facts[buffer] for buffer in item.inputs])
