# SPDX-License-Identifier: Apache-2.0
"""Convolutions: our kernels with the whole epilogue inside, then what libraries have."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from quantrt.gpu import GpuFacts
from quantrt.kernels.conv2d.spec import ConvProblem, TileConfig, kernel_of, why_not
from quantrt.kernels.conv2d.tiles import configs
from quantrt.regions.region import Conv
from quantrt.tactics.cuda.convolution import list_library_tactics
from quantrt.tactics.cuda.tactic import Constant, Draft, Rejected, Tactic, Workload

__all__ = ["list_tactics"]

_SOURCE = "triton"
_NAME = "conv2d"


def list_tactics(workload: Workload, device: GpuFacts) -> list[Tactic | Rejected]:
    """Our kernels in their tiles, the likely fastest first, then the library's ways."""
    formula = workload.formula
    if not isinstance(formula, Conv) or workload.weight is None:
        return [Rejected(_SOURCE, _NAME, f"the formula is {type(formula).__name__}, not a convolution")]
    return [*_own(workload, formula, workload.weight, device), *list_library_tactics(workload, device)]


def _own(
    workload: Workload, formula: Conv, weight: np.ndarray, device: GpuFacts
) -> Sequence[Tactic | Rejected]:
    reason = _why_not_shape(workload, formula, weight)
    if reason:
        return [Rejected(_SOURCE, _NAME, reason)]
    problem = _problem(workload, formula, weight)
    reason = why_not(problem, device)
    if reason:
        return [Rejected(_SOURCE, _NAME, reason)]
    return [_tactic(workload, formula, weight, problem, config) for config in configs(problem, device)]


def _why_not_shape(workload: Workload, formula: Conv, weight: np.ndarray) -> str | None:
    if formula.groups != 1:
        return f"no kernel for {formula.groups} groups"
    if len(formula.strides) > 2:
        return f"no kernel for {len(formula.strides)} spatial axes"
    x = workload.inputs[0]
    if len(x.shape) != len(formula.strides) + 2 or x.shape[1] != weight.shape[1]:
        return f"an input of {list(x.shape)} for a weight of {list(weight.shape)}"
    if (x.dtype == "int8") != (weight.dtype == np.int8):
        return f"an input of {x.dtype} for a weight of {weight.dtype}"
    return None


def _problem(workload: Workload, formula: Conv, weight: np.ndarray) -> ConvProblem:
    images, C, *size = workload.inputs[0].shape
    half = len(formula.pads) // 2
    top, left = _pair(formula.pads[:half], 0)
    bottom, right = _pair(formula.pads[half:], 0)
    H, W = _pair(tuple(size), 1)
    R, S = _pair(weight.shape[2:], 1)
    return ConvProblem(
        images=images,
        H=H,
        W=W,
        C=C,
        N=weight.shape[0],
        R=R,
        S=S,
        strides=_pair(formula.strides, 1),
        pads=(top, left, bottom, right),
        dilations=_pair(formula.dilations, 1),
        dtype=workload.inputs[0].dtype,
        epilogue=formula.epilogue,
        tensors=tuple(facts.dtype for facts in workload.inputs[1:]),
        outputs=workload.outputs,
    )


def _pair(numbers: Sequence[int], above: int) -> tuple[int, int]:
    """Numbers per spatial axis as (vertical, horizontal); a 1-D axis is horizontal."""
    return (numbers[0], numbers[1]) if len(numbers) == 2 else (above, numbers[0])


def _tactic(
    workload: Workload, formula: Conv, weight: np.ndarray, problem: ConvProblem, config: TileConfig
) -> Tactic:
    operands = formula.epilogue.operands[1:]
    options = {
        "kernel": list(weight.shape[2:]),
        "strides": list(formula.strides),
        "dilations": list(formula.dilations),
        "pads": list(formula.pads),
        "channels": problem.N,
        "kinds": [operand.kind for operand in operands],
        "scalars": [operand.value for operand in operands if operand.kind == "scalar"],
        "outputs": list(workload.outputs),
    }
    names = [operand.name for operand in operands if operand.kind == "constant"]
    draft = Draft(
        runner="conv2d",
        inputs=tuple(f"in{i}" for i in range(len(workload.inputs))),
        outputs=tuple(f"out{i}" for i in range(len(workload.outputs))),
        options=options,
        constants=(
            _weight_constant(formula.weight, weight, problem.dtype),
            *(_channel_constant(name, workload.constants[name], problem.N) for name in names),
        ),
        kernels=(kernel_of(problem, config),),
    )
    return Tactic(_SOURCE, f"{_NAME} {config.name}", (draft,))


def _weight_constant(name: str, weight: np.ndarray, dtype: str) -> Constant:
    """[N, C, *kernel] as [N, R, S, C], float32 rounded to float16."""

    def make() -> np.ndarray:
        pixels = np.moveaxis(weight, 1, -1)
        pixels = pixels if weight.ndim == 4 else pixels[:, np.newaxis]
        return np.ascontiguousarray(pixels.astype(dtype))

    return Constant(f"{name}:nrsc:{dtype}", make)


def _channel_constant(name: str, array: np.ndarray, channels: int) -> Constant:
    """A constant operand as float32 [N]."""

    def make() -> np.ndarray:
        return np.ascontiguousarray(np.broadcast_to(array.astype(np.float32).reshape(-1), (channels,)))

    return Constant(f"{name}:channels", make)
