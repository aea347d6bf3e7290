# SPDX-License-Identifier: Apache-2.0
"""Convolutions with their whole epilogue in one kernel of cuDNN's, through its graph API.

The plan is for one set of shapes. At others the step runs our own kernel, which is compiled along with it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from quantrt.gpu import GpuFacts
from quantrt.kernels.conv2d.spec import ConvProblem
from quantrt.plan.cudnn_plan import TYPES, CudnnGraph, graph_to_json
from quantrt.tactics.cuda.convolutions.cudnn_spelling import spell
from quantrt.tactics.cuda.tactic import Draft, Rejected, Tactic

__all__ = ["list_graph_tactics", "without_graphs"]

SOURCE = "cudnn"
NAME = "convolution graph"

RUNNER = "cudnn_graph"
_OWN_RUNNER = "conv2d"
_WORKSPACE = "workspace"

LEAST_CAPABILITY = 80
"""For int8 tensors channels-last: https://docs.nvidia.com/deeplearning/cudnn/latest/developer/graph-api.html"""

LEAST_PRODUCTS = 5 * 10**8
"""Multiply-adds under which a convolution takes an H200 about a microsecond: a plan takes seconds to make."""

_FACTORS = ("int8", "float16", "bfloat16")


def list_graph_tactics(
    problem: ConvProblem,
    device: GpuFacts,
    own: Sequence[Tactic | Rejected],
    library: Sequence[Tactic | Rejected],
) -> list[Tactic | Rejected]:
    """The tactic, or why there is none.

    Args:
        own: tactics of our kernels, one of which runs other shapes.
        library: those of cuDNN through torch; where they take all of the epilogue, nothing is won.
    """
    base = _base(own)
    reason = _why_not(problem, device, library)
    if reason or base is None:
        return [Rejected(SOURCE, NAME, reason or "no kernel of ours runs the shapes that a plan is not for")]
    spelled = spell(problem.epilogue, problem.dtype, problem.tensors, problem.outputs)
    if isinstance(spelled, str):
        return [Rejected(SOURCE, NAME, spelled)]
    graph = CudnnGraph(
        x=(problem.images, problem.C, problem.H, problem.W),
        weight=(problem.N, problem.C, problem.R, problem.S),
        dtype=problem.dtype,
        strides=problem.strides,
        dilations=problem.dilations,
        pads=problem.pads,
        operands=spelled.operands,
        ops=spelled.ops,
        outputs=spelled.outputs,
    )
    sources = [list(source) for source in spelled.sources]
    draft = replace(
        base,
        runner=RUNNER,
        outputs=(*base.outputs, _WORKSPACE),
        options={**base.options, "graph": graph_to_json(graph), "sources": sources},
        graphs=(graph,),
    )
    return [Tactic(SOURCE, NAME, (draft,))]


def without_graphs(listed: Sequence[Tactic | Rejected], reason: str) -> list[Tactic | Rejected]:
    """The same without tactics that need a plan of cuDNN's, and why."""
    return [
        Rejected(found.source, found.name, reason)
        if isinstance(found, Tactic) and any(draft.graphs for draft in found.drafts)
        else found
        for found in listed
    ]


def _base(own: Sequence[Tactic | Rejected]) -> Draft | None:
    """The step of our first kernel that takes x as it is."""
    tactics = (found for found in own if isinstance(found, Tactic) and len(found.drafts) == 1)
    return next((x.drafts[0] for x in tactics if x.drafts[0].runner == _OWN_RUNNER), None)


def _why_not(problem: ConvProblem, device: GpuFacts, library: Sequence[Tactic | Rejected]) -> str:
    products = problem.pixels * problem.N * problem.depth
    is_whole = any(isinstance(found, Tactic) and len(found.drafts) == 1 for found in library)
    unknown = next((kind for kind in (*problem.tensors, *problem.outputs) if kind not in TYPES), "")
    reasons = (
        (problem.dtype not in _FACTORS, f"no graph for products of {problem.dtype}"),
        (bool(unknown), f"no graph that reads or stores {unknown}"),
        (
            device.capability < LEAST_CAPABILITY,
            f"compute capability {device.capability}: {LEAST_CAPABILITY} is the least",
        ),
        (problem.pad_code != 0, f"its padding is of the code {problem.pad_code}, and cuDNN's of 0"),
        (min(problem.pads, default=0) < 0, f"negative padding {list(problem.pads)}"),
        (problem.has_gaps, "pixels with gaps between, as slices of joined channels have"),
        (is_whole, "cuDNN through torch takes the whole epilogue"),
        (
            products < LEAST_PRODUCTS,
            f"{products} multiply-adds are too few to be worth the seconds that a plan takes: "
            f"{LEAST_PRODUCTS} are the least",
        ),
    )
    return next((reason for is_so, reason in reasons if is_so), "")
