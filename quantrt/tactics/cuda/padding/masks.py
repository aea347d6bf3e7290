# SPDX-License-Identifier: Apache-2.0
"""Whether an attention's mask says what a mask of tokens says, and no more: asked by values.

Exporters spell the way from one to the other in many ways, with comparisons of positions among them. Here it
is run, on a random mask, and what comes out is looked at.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import torch

from quantrt.plan.program import Program
from quantrt.regions.region import Attention
from quantrt.runtime.cuda.steps.steps import FreshMemory, open_program, run_steps
from quantrt.runtime.cuda.tensors import tensor_on
from quantrt.tactics.cuda.program.assemble import Item
from quantrt.tactics.cuda.program.frame import Frame

__all__ = ["random_mask", "reasons_against"]

LOWEST_SCORE = -1e4
"""Of a key that counts for nothing: exp(-1e4) is 0 in float32."""

SEED = 0


def random_mask(mask: np.ndarray) -> np.ndarray:
    """One of the same shape and type with tokens and padding in any order, the first of a sample a token."""
    rows = np.random.default_rng(SEED).integers(0, 2, mask.shape)
    rows[:, :1] = 1
    return rows.astype(mask.dtype)


def reasons_against(
    frame: Frame, references: Program, mask: str, inputs: Mapping[str, np.ndarray], device: torch.device
) -> dict[str, str | None]:
    """For every attention's region, why its mask is another than this input; None where it is the same.

    Args:
        references: the frame's steps by the reference.
    """
    attention = [
        item
        for item in frame.items
        if item.lowered is not None and isinstance(item.lowered.formula, Attention)
    ]
    given = dict(inputs) | {mask: random_mask(inputs[mask])}
    buffers = {item.inputs[3] for item in attention if len(item.inputs) > 3}
    values = _values_of(buffers, references, given, device)
    is_token = tensor_on(given[mask]).to(device) != 0
    return {item.region: _reason(item, values, is_token) for item in attention}


def _reason(item: Item, values: Mapping[str, torch.Tensor], is_token: torch.Tensor) -> str | None:
    formula = None if item.lowered is None else item.lowered.formula
    assert isinstance(formula, Attention)
    if not formula.has_mask:
        return "has no mask that is computed: padding is attended to"
    found, (B, S) = values[item.inputs[3]], is_token.shape
    if found.dim() != 4 or found.shape[0] != B or found.shape[2] not in (1, S) or found.shape[3] != S:
        return f"has a mask of {list(found.shape)} for {B} samples of {S} tokens"
    keys = is_token[:, None, None, :]
    if formula.mask_kind == "added":
        is_same = torch.where(keys, found == 0, found <= LOWEST_SCORE)
    elif formula.mask_value > LOWEST_SCORE:
        return f"gives keys that are masked a score of {formula.mask_value:g}, and so a weight"
    else:
        is_same = (found if formula.mask_kind == "kept" else ~found) == keys
    is_padding = ~is_token[:, None, :, None]  # whose own queries nothing needs
    is_right = bool((is_same | is_padding if found.shape[2] == S else is_same).all())
    return None if is_right else "masks other keys than the padding"


def _values_of(
    buffers: set[str], program: Program, inputs: Mapping[str, np.ndarray], device: torch.device
) -> dict[str, torch.Tensor]:
    """What the program stores in these buffers."""
    read, steps = set(buffers), []
    for step in reversed(program.steps):
        if read.intersection(step.outputs):
            steps.append(step)
            read.update(step.inputs)
    outputs = tuple((name, name, "float32") for name in sorted(buffers))
    weights = {key: program.weights[key] for step in steps for key in step.weights}
    part = replace(program, steps=tuple(steps[::-1]), outputs=outputs, weights=weights)
    opened = open_program(part, device)
    values = {name: tensor_on(inputs[name]).to(device) for name, _ in program.inputs}
    with torch.no_grad():
        run_steps(opened, values, FreshMemory(device))
    return {name: values[name] for name in buffers}
