# SPDX-License-Identifier: Apache-2.0
"""Convolutions: our kernels with the whole epilogue inside, then what libraries have."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from quantrt.gpu import GpuFacts
from quantrt.kernels.borders import spec as borders
from quantrt.kernels.conv2d import spec as conv2d
from quantrt.kernels.conv2d import tiles as conv2d_tiles
from quantrt.kernels.conv_hopper import spec as conv_hopper
from quantrt.kernels.conv_hopper import tiles as box_tiles
from quantrt.kernels.depthwise import spec as depthwise
from quantrt.kernels.epilogue.spec import ELEMENT_BYTES
from quantrt.kernels.fold_pixels import spec as fold_pixels
from quantrt.kernels.gemm_hopper import spec as hopper
from quantrt.kernels.gemm_hopper import tiles as hopper_tiles
from quantrt.kernels.gemm_hopper.pixels import product_of
from quantrt.kernels.kernel import KernelSpec
from quantrt.kernels.split_k import spec as split_k
from quantrt.kernels.split_k import tiles as split_k_tiles
from quantrt.kernels.thin_conv2d import spec as thin_conv2d
from quantrt.kernels.thin_conv2d import tiles as thin_tiles
from quantrt.regions.region import Conv
from quantrt.tactics.cuda.convolutions.cudnn import list_library_tactics
from quantrt.tactics.cuda.convolutions.cudnn_graph import list_graph_tactics
from quantrt.tactics.cuda.convolutions.depthwise import depthwise_tactics
from quantrt.tactics.cuda.convolutions.of_workload import problem_of, tactic_of
from quantrt.tactics.cuda.convolutions.weights import (
    channels_last,
    lines_of_windows,
    rows_of_folded,
    rows_of_windows,
)
from quantrt.tactics.cuda.tactic import Constant, Draft, Rejected, Tactic, Workload
from quantrt.tactics.cuda.tiles_of import tiles_of

__all__ = ["FOLDED", "list_tactics"]

_SOURCE = "triton"
_CONV2D = "conv2d"
_DEPTHWISE = "depthwise"
_THIN = "thin_conv2d"
FOLDED = "folded_conv2d"
_PADDED = "padded"
_BORDERED = "bordered"
_PARTS = "parts"
"""The buffers of x with more channels, of x with its borders too, and of parts of sums."""

MAX_BLOCKS_BYTES = 16 << 20
"""Of the weights of all groups with zeros between them, a third of a large GPU's L2 cache."""

_BEFORE_SPLIT = 4
"""Tactics that are tried before those that cut sums, for not all may be."""


def list_tactics(workload: Workload, device: GpuFacts) -> list[Tactic | Rejected]:
    """Our kernels in their tiles, the likely fastest first, then the library's ways."""
    formula = workload.formula
    if not isinstance(formula, Conv) or workload.weight is None:
        return [Rejected(_SOURCE, _CONV2D, f"the formula is {type(formula).__name__}, not a convolution")]
    own = _own(workload, formula, workload.weight, device)
    library = list_library_tactics(workload, device)
    is_grouped = formula.groups > 1 and not _is_depthwise(formula, workload.weight)
    if is_grouped or _why_not_shape(workload, formula, workload.weight):
        return [*own, *library]
    graphs = list_graph_tactics(problem_of(workload, formula, workload.weight), device, own, library)
    is_codes = workload.weight.dtype == np.int8  # the library's ways turn these into floats
    return [*own, *graphs, *library] if is_codes else [*own, *library, *graphs]


def _own(
    workload: Workload, formula: Conv, weight: np.ndarray, device: GpuFacts
) -> Sequence[Tactic | Rejected]:
    is_depthwise = _is_depthwise(formula, weight)
    family = _DEPTHWISE if is_depthwise else _CONV2D
    reason = _why_not_shape(workload, formula, weight)
    if reason:
        return [Rejected(_SOURCE, family, reason)]
    problem = problem_of(workload, formula, weight)
    reason = depthwise.why_not(problem) if is_depthwise else conv2d.why_not(problem, device)
    if reason:
        return [Rejected(_SOURCE, family, reason)]
    if is_depthwise:
        return depthwise_tactics(workload, formula, problem, weight, device)
    if formula.groups > 1:
        return _in_blocks(workload, formula, problem, weight, device)
    constant = channels_last(formula.weight, weight, problem.dtype, channels=problem.C)
    whole = [
        *_products(workload, formula, problem, weight, device),
        *_windows(workload, formula, problem, weight, device),
        *_folded(workload, formula, weight, device),
        *_thin(workload, formula, weight, device),
        *_padded(workload, formula, weight, device),
        *(
            tactic_of(workload, problem, constant, f"{family} {tile.name}", conv2d.kernel_of(problem, tile))
            for tile in tiles_of(conv2d_tiles.configs, problem, device)
        ),
    ]
    split = _split(workload, problem, constant, device)
    bordered = _bordered(workload, problem, constant, device)
    ahead = _BEFORE_SPLIT // 2 if bordered else _BEFORE_SPLIT
    return [*whole[:ahead], *bordered[:ahead], *split, *whole[ahead:], *bordered[ahead:]]


def _in_blocks(
    workload: Workload,
    formula: Conv,
    problem: conv2d.ConvProblem,
    weight: np.ndarray,
    device: GpuFacts,
) -> Sequence[Tactic | Rejected]:
    """A convolution of groups as one of all channels; the runner puts zeros between the groups' weights.

    Tensor cores multiply so many zeros faster than libraries multiply small groups.
    """
    size_bytes = problem.N * problem.depth * ELEMENT_BYTES[problem.dtype]
    if size_bytes > MAX_BLOCKS_BYTES:
        reason = f"{formula.groups} groups as one convolution would have weights of {size_bytes >> 20} MB"
        return [Rejected(_SOURCE, _CONV2D, reason)]
    constant = channels_last(formula.weight, weight, problem.dtype)
    tactics = []
    for tile in tiles_of(conv2d_tiles.configs, problem, device):
        name = f"{_CONV2D} {formula.groups} groups {tile.name}"
        (draft,) = tactic_of(workload, problem, constant, name, conv2d.kernel_of(problem, tile)).drafts
        draft = replace(draft, options={**draft.options, "groups": formula.groups})
        tactics.append(Tactic(_SOURCE, name, (draft,), size_bytes))
    return tactics


def _split(
    workload: Workload, problem: conv2d.ConvProblem, weight: Constant, device: GpuFacts
) -> list[Tactic]:
    """Sums in parts, with a second kernel that adds them; none where tiles fill the device."""
    tactics = []
    for config in tiles_of(split_k_tiles.configs, problem, device):
        name = f"{_CONV2D} {config.name}"
        parts = split_k.parts_kernel_of(problem, config)
        (draft,) = tactic_of(workload, problem, weight, name, parts).drafts
        draft = replace(
            draft,
            runner="split_conv2d",
            outputs=(*draft.outputs, _PARTS),
            kernels=(parts, split_k.add_kernel_of(problem, config)),
        )
        tactics.append(Tactic(_SOURCE, name, (draft,), split_k.parts_bytes(problem, config)))
    return tactics


def _padded(workload: Workload, formula: Conv, weight: np.ndarray, device: GpuFacts) -> list[Tactic]:
    """The product behind a kernel that adds channels of zeros to x; none where x needs no more channels."""
    thin = problem_of(workload, formula, weight)
    channels = conv2d.padded_channels(thin)
    if channels is None:
        return []
    problem = replace(thin, C=channels, x_pitch=0)
    pad = Draft(
        runner="pad_channels",
        inputs=("in0",),
        outputs=(_PADDED,),
        options={"channels": channels},
        kernels=(conv2d.pad_kernel_of(thin, channels),),
    )
    size_bytes = thin.images * thin.H * thin.W * channels * ELEMENT_BYTES[thin.dtype]
    constant = channels_last(formula.weight, weight, problem.dtype, channels=channels)
    tactics = []
    for tile in tiles_of(conv2d_tiles.configs, problem, device):
        name = f"{_CONV2D} {channels} channels {tile.name}"
        (product,) = tactic_of(workload, problem, constant, name, conv2d.kernel_of(problem, tile)).drafts
        product = replace(product, inputs=(_PADDED, *product.inputs[1:]))
        tactics.append(Tactic(_SOURCE, name, (pad, product), size_bytes))
    return tactics


def _bordered(
    workload: Workload, problem: conv2d.ConvProblem, weight: Constant, device: GpuFacts
) -> list[Tactic]:
    """The product, ours and cuDNN's, behind a kernel that adds borders of another code than 0 to x."""
    inner = borders.inner_problem(problem)
    if inner is None:
        return []
    border = Draft(
        runner="add_borders",
        inputs=("in0",),
        outputs=(_BORDERED,),
        options={},
        kernels=(borders.kernel_of(problem),),
    )
    own = [
        tactic_of(workload, inner, weight, f"{_CONV2D} borders {tile.name}", conv2d.kernel_of(inner, tile))
        for tile in tiles_of(conv2d_tiles.configs, inner, device)
    ]
    graphs = [x for x in list_graph_tactics(inner, device, own, ()) if isinstance(x, Tactic)]
    tactics = []
    for tactic in (*own, *graphs):
        (product,) = tactic.drafts
        product = replace(product, inputs=(_BORDERED, *product.inputs[1:]))
        name = tactic.name if tactic.source == _SOURCE else f"{tactic.name} borders"
        tactics.append(Tactic(tactic.source, name, (border, product), borders.bordered_bytes(problem)))
    return tactics


def _products(
    workload: Workload,
    formula: Conv,
    problem: conv2d.ConvProblem,
    weight: np.ndarray,
    device: GpuFacts,
) -> list[Tactic]:
    """A convolution of single pixels as a product; none where it is no such or no kernel computes it."""
    product = product_of(problem)
    if product is None or hopper.why_not(product, device):
        return []
    kernels = [
        (tile.name, hopper.run_of(product, tile), hopper.kernel_of(product, tile))
        for tile in tiles_of(hopper_tiles.configs, product, device)
    ]
    return _on_hopper(workload, formula, problem, weight, runner="hopper_conv2d", kernels=kernels)


def _windows(
    workload: Workload,
    formula: Conv,
    problem: conv2d.ConvProblem,
    weight: np.ndarray,
    device: GpuFacts,
) -> list[Tactic]:
    """The kernel that copies windows in boxes; none where it cannot compute the problem."""
    if conv_hopper.why_not(problem, device):
        return []
    kernels = [
        (tile.name, conv_hopper.run_of(problem, tile), conv_hopper.kernel_of(problem, tile))
        for tile in tiles_of(box_tiles.configs, problem, device)
    ]
    return _on_hopper(workload, formula, problem, weight, runner="conv_hopper", kernels=kernels)


def _on_hopper(
    workload: Workload,
    formula: Conv,
    problem: conv2d.ConvProblem,
    weight: np.ndarray,
    *,
    runner: str,
    kernels: Sequence[tuple[str, int, KernelSpec]],
) -> list[Tactic]:
    """Kernels that read windows of the weight in the order of their sums.

    Args:
        kernels: of each its name, how many columns of the output a thread has side by side, and what it is.
    """
    tactics = []
    for name, run, kernel in kernels:
        constant = rows_of_windows(formula.weight, weight, problem.dtype, run)
        (draft,) = tactic_of(workload, problem, constant, f"{_CONV2D} {name}", kernel).drafts
        tactics.append(Tactic(_SOURCE, f"{_CONV2D} {name}", (replace(draft, runner=runner),)))
    return tactics


def _folded(workload: Workload, formula: Conv, weight: np.ndarray, device: GpuFacts) -> list[Tactic]:
    """A first layer with strides, behind a kernel that folds squares of pixels into channels."""
    problem = problem_of(workload, formula, weight)
    folding = fold_pixels.folding_of(problem)
    if folding is None or conv_hopper.why_not(folding.problem, device):
        return []
    tactics = []
    for tile in tiles_of(box_tiles.configs, folding.problem, device):
        name = f"{FOLDED} {tile.name}"
        run, kernel = conv_hopper.run_of(folding.problem, tile), conv_hopper.kernel_of(folding.problem, tile)
        constant = rows_of_folded(formula.weight, weight, folding, run)
        (draft,) = tactic_of(workload, problem, constant, name, kernel).drafts
        draft = replace(
            draft,
            runner=FOLDED,
            outputs=(*draft.outputs, _BORDERED),
            kernels=(kernel, fold_pixels.kernel_of(problem, folding)),
        )
        tactics.append(Tactic(_SOURCE, name, (draft,), folding.size_bytes))
    return tactics


def _thin(workload: Workload, formula: Conv, weight: np.ndarray, device: GpuFacts) -> list[Tactic]:
    """The kernel for the few channels of a first layer; none where it cannot compute the problem."""
    problem = problem_of(workload, formula, weight)
    if thin_conv2d.why_not(problem, device):
        return []
    constant = lines_of_windows(formula.weight, weight, problem)
    tactics = []
    for tile in tiles_of(thin_tiles.configs, problem, device):
        name = f"{_THIN} {tile.name}"
        (draft,) = tactic_of(workload, problem, constant, name, thin_conv2d.kernel_of(problem, tile)).drafts
        draft = replace(
            draft,
            runner=_THIN,
            outputs=(*draft.outputs, _BORDERED),
            options={**draft.options, "programs": thin_tiles.programs_of(problem, tile, device)},
            kernels=(*draft.kernels, thin_conv2d.border_kernel_of(problem)),
        )
        tactics.append(Tactic(_SOURCE, name, (draft,), thin_tiles.bordered_bytes(problem, tile)))
    return tactics


def _is_depthwise(formula: Conv, weight: np.ndarray) -> bool:
    return formula.groups > 1 and weight.shape[:2] == (formula.groups, 1)


def _why_not_shape(workload: Workload, formula: Conv, weight: np.ndarray) -> str | None:
    per_group = weight.shape[1]
    if len(formula.strides) > 2:
        return f"no kernel for {len(formula.strides)} spatial axes"
    x = workload.inputs[0]
    if len(x.shape) != len(formula.strides) + 2 or x.shape[1] != per_group * formula.groups:
        return f"an input of {list(x.shape)} for a weight of {list(weight.shape)}"
    if (x.dtype == "int8") != (weight.dtype == np.int8):
        return f"an input of {x.dtype} for a weight of {weight.dtype}"
    return None
