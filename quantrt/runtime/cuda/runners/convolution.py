# SPDX-License-Identifier: Apache-2.0
"""relu(conv(x, w) + bias + residual) through torch: cuDNN on a GPU; channels-last in and out, 1-D to 3-D.

options: {"strides", "dilations": one number per spatial axis, "pads": begins, then ends, "groups", "dtype":
numpy's name of the type it computes in and stores, "has_bias", "has_residual", "has_relu", "is_benchmarked":
cuDNN times its algorithms at the first run of each shape, otherwise it takes the one that it expects to be
fastest}. Inputs: x, then the residual if there is one. Weights: the weight [C_out, *kernel, C_in / groups] in
that type, then the bias if there is one.

Bias, residual and ReLU are part of cuDNN's convolution where ReLU is last, in 1-D and 2-D without groups.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch.backends import cudnn
from torch.nn import functional

from quantrt.errors import DataError, DeviceError
from quantrt.plan.program import Step
from quantrt.runtime.cuda.device.memory_limit import room_limit
from quantrt.runtime.cuda.runner import Allocate, Assets, Runner

__all__ = ["open_runner"]

Tensor = torch.Tensor

# torch chooses algorithms by switches of the process: no two threads may set them at once.
_SWITCHES = threading.Lock()

WORKSPACE_BYTES = 2 << 30
"""What cuDNN may take to choose an algorithm, outputs among it; all there is where that does not do."""

_CONVOLUTIONS = {2: functional.conv2d, 3: functional.conv3d}
_FORMATS = {2: torch.channels_last, 3: torch.channels_last_3d}


def open_runner(step: Step, assets: Assets) -> Runner:
    """The runner of one step."""
    return _ConvolutionRunner(step, assets)


class _ConvolutionRunner:
    def __init__(self, step: Step, assets: Assets) -> None:
        options = step.options
        self._region = step.region
        self._is_1d = len(options["strides"]) == 1
        above = int(self._is_1d)
        self._rank = len(options["strides"]) + above
        self._strides = [1] * above + [int(n) for n in options["strides"]]
        self._dilations = [1] * above + [int(n) for n in options["dilations"]]
        half = len(options["pads"]) // 2
        self._begins = [0] * above + [int(n) for n in options["pads"][:half]]
        self._ends = [0] * above + [int(n) for n in options["pads"][half:]]
        self._groups = int(options["groups"])
        self._dtype: torch.dtype = getattr(torch, options["dtype"])
        self._has_residual = bool(options["has_residual"])
        self._has_relu = bool(options["has_relu"])
        self._is_benchmarked = bool(options["is_benchmarked"])
        weight = assets.weights[step.weights[0]].movedim(-1, 1)
        self._weight = weight.unsqueeze(2) if self._is_1d else weight
        self._bias = assets.weights[step.weights[1]] if options["has_bias"] else None
        self._is_on_gpu = assets.device.type == "cuda"
        self._chosen: set[tuple[int, torch.Size]] = set()

    def run(self, inputs: Sequence[Any], allocate: Allocate) -> Sequence[Any]:
        """See Runner.run; the result is torch's own, channels-last."""
        flat = [tensor.unsqueeze(2) if self._is_1d else tensor for tensor in inputs]
        try:
            x, padding = self._padded(flat[0].to(self._dtype))
            residual = flat[1] if self._has_residual else None
            y = self._convolve(x, padding, residual)
        except torch.OutOfMemoryError as error:
            raise DeviceError(
                f"not enough memory for the convolution of region '{self._region}'",
                got=_shapes(inputs),
                hint="a smaller batch",
            ) from error
        except RuntimeError as error:
            message = f"cannot compute the convolution of region '{self._region}' of {_shapes(inputs)}"
            raise DataError(message, got=str(error)) from error
        y = y.contiguous(memory_format=_FORMATS[self._rank])
        return [y.squeeze(2) if self._is_1d else y]

    def _padded(self, x: Tensor) -> tuple[Tensor, list[int]]:
        """The input with channels innermost, and what the convolution has to pad on both sides alike."""
        x = x.contiguous(memory_format=_FORMATS[self._rank])
        if self._begins == self._ends and min(self._begins) >= 0:
            return x, self._begins
        pairs = zip(reversed(self._begins), reversed(self._ends), strict=True)
        return functional.pad(x, [n for pair in pairs for n in pair]), [0] * self._rank

    def _convolve(self, x: Tensor, padding: list[int], residual: Tensor | None) -> Tensor:
        if not self._is_on_gpu:
            return self._on_cpu(x, padding, residual)
        with _switches(is_benchmarked=self._is_benchmarked):
            if (threading.get_ident(), x.shape) not in self._chosen:
                self._choose(x, padding, residual)
            return self._on_gpu(x, padding, residual)

    def _choose(self, x: Tensor, padding: list[int], residual: Tensor | None) -> None:
        """Run once, for cuDNN to choose an algorithm for the shape, which torch keeps for this thread."""
        self._chosen.add((threading.get_ident(), x.shape))
        try:
            with room_limit(WORKSPACE_BYTES):
                self._on_gpu(x, padding, residual)
        except torch.OutOfMemoryError:
            return  # chosen by the next run, without a bound

    def _on_gpu(self, x: Tensor, padding: list[int], residual: Tensor | None) -> Tensor:
        if residual is not None:
            residual = residual.to(self._dtype).contiguous(memory_format=_FORMATS[self._rank])
        if not self._is_fused(x):
            return self._finished(self._plain(x, self._weight, self._bias, padding), residual)
        geometry = (self._strides, padding, self._dilations, self._groups)
        if residual is None:
            return torch.cudnn_convolution_relu(x, self._weight, self._bias, *geometry)
        return torch.cudnn_convolution_add_relu(x, self._weight, residual, 1.0, self._bias, *geometry)

    def _is_fused(self, x: Tensor) -> bool:
        """Whether cuDNN's convolution takes the rest with it; it takes no empty tensors."""
        return self._has_relu and self._groups == 1 and self._rank == 2 and x.numel() > 0

    def _on_cpu(self, x: Tensor, padding: list[int], residual: Tensor | None) -> Tensor:
        """The same in float32, rounded once, as cuDNN does."""
        bias = None if self._bias is None else self._bias.float()
        y = self._plain(x.float(), self._weight.float(), bias, padding)
        return self._finished(y, residual).to(self._dtype)

    def _plain(self, x: Tensor, weight: Tensor, bias: Tensor | None, padding: list[int]) -> Tensor:
        convolve = _CONVOLUTIONS[self._rank]
        y: Tensor = convolve(x, weight, bias, self._strides, padding, self._dilations, self._groups)
        return y

    def _finished(self, y: Tensor, residual: Tensor | None) -> Tensor:
        y = y if residual is None else y.add_(residual)
        return y.relu_() if self._has_relu else y


@contextmanager
def _switches(*, is_benchmarked: bool) -> Iterator[None]:
    """Switches of cuDNN for one run, while no other thread sets them; no TF32 in place of float32."""
    chosen = cudnn.flags(enabled=True, benchmark=is_benchmarked, allow_tf32=False)
    with _SWITCHES, chosen:
        yield


def _shapes(inputs: Sequence[Any]) -> str:
    return ", ".join(str(list(tensor.shape)) for tensor in inputs)
