# SPDX-License-Identifier: Apache-2.0
"""Regions in their forms, each with a tactic -> Program."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

import numpy as np

from quantrt.kernels.kernel import CompiledKernel, KernelSpec
from quantrt.kernels.kernel_text import kernel_key
from quantrt.plan.cudnn_plan import CudnnPlan, graph_key
from quantrt.plan.program import Place, Program, Step
from quantrt.tactics.cuda.forms.workloads import Lowered
from quantrt.tactics.cuda.tactic import LIVE, Constant, Draft, Tactic
from quantrt.threads import usable_cores

__all__ = ["Item", "assemble"]


@dataclass(frozen=True)
class Item:
    """One region on its buffers.

    Attributes:
        region: its name.
        inputs, outputs: buffers.
        lowered: the formula that tactics compute; None for `step`.
        step: of a region that has one way to run (views, host values, nodes).
        live: the buffer with the number of its rows that count; empty where all do.
    """

    region: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    lowered: Lowered | None = None
    step: Step | None = None
    live: str = ""


def assemble(
    frame: Program,
    items: Sequence[Item],
    tactics: Mapping[str, Tactic],
    kernels: Mapping[KernelSpec, CompiledKernel],
    plans: Mapping[str, CudnnPlan] | None = None,
    *,
    places: Mapping[str, Place] | None = None,
    moves_weights: bool = True,
) -> Program:
    """The program that runs `items` in order, by the tactic that is chosen for each.

    Args:
        frame: inputs, outputs, nodes and the weights that items without a formula read.
        tactics: by region, for every item with a formula.
        kernels: machine code of every kernel of those tactics.
        plans: of their graphs, by key; None on a CPU, where a graph is evaluated as it is defined.
        places: of the buffers that are slices of larger images.
        moves_weights: False for tactics that read all of them as they are: there is nothing to share out.
    """
    plans = plans or {}
    steps: list[Step] = []
    constants: dict[str, Constant] = {}
    used: dict[str, CompiledKernel] = {}
    used_plans: dict[str, CudnnPlan] = {}
    for item in items:
        if item.step is not None:
            steps.append(item.step)
            continue
        for draft in tactics[item.region].drafts:
            step = _placed(_step(draft, item, plans), places or {})
            steps.append(step)
            used_plans.update({key: plans[key] for key in step.plans})
            for constant in draft.constants:
                constants.setdefault(_weight_key(item, constant.key), constant)
            for spec in draft.kernels:
                used[kernel_key(spec)] = kernels[spec]
    weights = {**_made(constants, usable_cores() if moves_weights else 1), **frame.weights}
    return replace(frame, steps=tuple(steps), weights=weights, kernels=used, plans=used_plans)


def _made(constants: Mapping[str, Constant], cores: int) -> dict[str, np.ndarray]:
    """The arrays of a tactic's constants, by the same keys."""

    def make(constant: Constant) -> np.ndarray:
        return np.ascontiguousarray(constant.make())

    if cores == 1:
        return {key: make(constant) for key, constant in constants.items()}
    with ThreadPoolExecutor(cores) as pool:  # numpy copies without Python's lock
        return dict(zip(constants, pool.map(make, constants.values()), strict=True))


def _weight_key(item: Item, key: str) -> str:
    """Where a tactic's constant is kept: constants are named by the region they are made for."""
    return f"{item.region}/{key}"


def _step(draft: Draft, item: Item, plans: Mapping[str, CudnnPlan]) -> Step:
    return Step(
        runner=draft.runner,
        region=item.region,
        inputs=tuple(_buffer(name, item) for name in draft.inputs),
        outputs=tuple(_buffer(name, item) for name in draft.outputs),
        options=draft.options,
        weights=tuple(_weight_key(item, constant.key) for constant in draft.constants),
        kernels=tuple(kernel_key(spec) for spec in draft.kernels),
        plans=tuple(key for key in map(graph_key, draft.graphs) if key in plans),
    )


def _placed(step: Step, places: Mapping[str, Place]) -> Step:
    found = tuple(places[buffer] for buffer in step.outputs if buffer in places)
    return replace(step, places=found) if found else step


def _buffer(name: str, item: Item) -> str:
    """The program's buffer that a draft means."""
    if name == LIVE:
        return item.live
    if name.startswith("in") and name[2:].isdigit():
        return item.inputs[int(name[2:])]
    if name.startswith("out") and name[3:].isdigit():
        return item.outputs[int(name[3:])]
    return f"{item.region}/{name}"
