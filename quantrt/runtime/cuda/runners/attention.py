# SPDX-License-Identifier: Apache-2.0
"""softmax(masked(scale * q @ k^T)) @ v through torch's scaled_dot_product_attention.

options: {"backends": names, best first, the last for any shape; "dtype": numpy's name of the type it computes
and stores; "scale": float; "is_transposed": k is [B, H, D, T]; "is_causal"; "mask_kind", "mask_value": as in
the formula}. Inputs: q, k, v, a mask or none. Weights: the mask where it is a constant, to be added, of the
type that is computed in; its rows may be longer than there are keys.
A query that may attend to nothing (-inf all along) gives 0, as ONNX has it; one whose scores all are the same
finite `mask_value` sees all keys alike. A CPU always takes "math": torch's fused kernel there turns a query
with NaN into zeros.
"""

from __future__ import annotations

import logging
import math
import threading
from collections.abc import Sequence
from typing import Any

import torch
from torch.backends import cuda as fused
from torch.nn.attention import SDPBackend, sdpa_kernel

from quantrt.errors import DataError, DeviceError
from quantrt.plan.program import Step
from quantrt.runtime.cuda.runner import Allocate, Assets, Runner

__all__ = ["open_runner"]

_log = logging.getLogger(__name__)

_BACKENDS = {
    "cudnn": SDPBackend.CUDNN_ATTENTION,
    "flash": SDPBackend.FLASH_ATTENTION,
    "efficient": SDPBackend.EFFICIENT_ATTENTION,
    "math": SDPBackend.MATH,
}

# torch chooses the backend by switches of the process: no two threads may set them at once.
_SWITCHES = threading.Lock()

_ROW_BYTES = 16
"""The fused kernels load 16 bytes at a time."""


def open_runner(step: Step, assets: Assets) -> Runner:
    """The runner of one step."""
    return _AttentionRunner(step, assets.device, *(assets.weights[key] for key in step.weights))


class _AttentionRunner:
    def __init__(self, step: Step, device: torch.device, mask: torch.Tensor | None = None) -> None:
        options = step.options
        self._region = step.region
        self._backends: tuple[str, ...] = tuple(options["backends"])
        self._dtype: torch.dtype = getattr(torch, options["dtype"])
        self._scale = float(options["scale"])
        self._is_transposed = bool(options["is_transposed"])
        self._is_causal = bool(options.get("is_causal", False))
        self._mask_kind = str(options.get("mask_kind", "added"))
        self._mask_value = float(options.get("mask_value", -math.inf))
        self._constant = mask
        self._is_on_cpu = device.type == "cpu"
        self._replaced: set[str] = set()

    def run(self, inputs: Sequence[Any], allocate: Allocate) -> Sequence[Any]:
        """See Runner.run; the axes of the result lie as the backend left them, mostly in the order of q's."""
        q, k, v = (tensor.to(self._dtype) for tensor in inputs[:3])
        k = k.transpose(-1, -2) if self._is_transposed else k
        mask = self._given_mask(inputs, k.shape[2])
        self._check(q, k, v, mask)
        batch = max(q.shape[0], k.shape[0], v.shape[0])
        qkv = [tensor.expand(batch, -1, -1, -1) for tensor in (q, k, v)]
        try:
            truths = mask if self._puts_a_number else None
            if mask is not None:
                mask = _prepared_mask(self._addend(mask), k.shape[2], self._dtype)
                if self._is_causal:
                    mask = mask + _causal_mask(q.shape[2], k.shape[2], mask)
            y = self._attend(qkv, mask)
            return [y if truths is None else self._alike_where_masked(y, truths, qkv[2])]
        except torch.OutOfMemoryError as error:
            raise DeviceError(
                f"not enough memory for attention in region '{self._region}'",
                got=f"q {list(q.shape)}, k {list(k.shape)}",
                hint="a smaller batch or a shorter sequence",
            ) from error

    def _given_mask(self, inputs: Sequence[Any], T: int) -> torch.Tensor | None:
        mask = self._constant
        if mask is None:
            return inputs[3] if len(inputs) > 3 else None
        return mask[..., :T] if mask.dim() and mask.shape[-1] > 1 else mask

    def _addend(self, mask: torch.Tensor) -> torch.Tensor:
        """The mask as floats that are added to the scores."""
        if self._constant is not None or self._mask_kind == "added":
            return mask
        number = self._mask_value
        if math.isfinite(number):
            number = max(number, torch.finfo(self._dtype).min)
        start, rest = (number, 0.0) if self._mask_kind == "kept" else (0.0, number)
        addend = torch.full(mask.shape, start, dtype=self._dtype, device=mask.device)
        return addend.masked_fill_(mask, rest)

    @property
    def _puts_a_number(self) -> bool:
        """Whether a finite number stands in the place of masked scores."""
        is_finite = self._mask_kind != "added" and math.isfinite(self._mask_value)
        return is_finite and self._constant is None

    def _alike_where_masked(self, y: torch.Tensor, mask: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        """The result, where all that a query could see is masked, with the mean of v.

        All its scores are one number then. As an addend that number leaves the scores in them.
        """
        S, T = y.shape[2], v.shape[2]
        is_hidden = mask if self._mask_kind == "dropped" else ~mask
        is_hidden = is_hidden[(None,) * (4 - is_hidden.dim())]
        if not self._is_causal:
            mean = v.mean(2, keepdim=True, dtype=torch.float32)
        else:
            place = torch.arange(S, device=v.device)[:, None]
            is_hidden = is_hidden | (torch.arange(T, device=v.device) > place)
            last = place.clamp(max=T - 1)
            mean = (v.float().cumsum(2) / torch.arange(1, T + 1, device=v.device)[:, None])[:, :, last[:, 0]]
        groups = y.shape[1] // v.shape[1]
        mean = mean.to(y.dtype).repeat_interleave(groups, 1) if groups > 1 else mean.to(y.dtype)
        return torch.where(is_hidden.all(-1, keepdim=True), mean, y)

    def _attend(self, qkv: Sequence[torch.Tensor], mask: torch.Tensor | None) -> torch.Tensor:
        q, k, v = qkv if self._is_on_cpu else [_packed(tensor) for tensor in qkv]
        with _SWITCHES, sdpa_kernel(_BACKENDS[self._usable(q, k, v, mask)]):
            return torch.nn.functional.scaled_dot_product_attention(
                q,
                k,
                v,
                mask,
                scale=self._scale,
                is_causal=self._is_causal and mask is None,
                enable_gqa=q.shape[1] != k.shape[1],
            )

    def _usable(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, mask: torch.Tensor | None) -> str:
        """The first backend that takes the tensors; the last is not asked."""
        if self._is_on_cpu:
            return "math"
        is_causal = self._is_causal and mask is None
        parameters = fused.SDPAParams(q, k, v, mask, 0.0, is_causal, q.shape[1] != k.shape[1])
        checks = {
            "cudnn": fused.can_use_cudnn_attention,
            "flash": fused.can_use_flash_attention,
            "efficient": fused.can_use_efficient_attention,
        }
        for name in self._backends[:-1]:
            if name not in checks or checks[name](parameters):
                return self._noted(name)
        return self._noted(self._backends[-1])

    def _noted(self, name: str) -> str:
        """The name, said once when it is not the planned one."""
        if name != self._backends[0] and name not in self._replaced:
            self._replaced.add(name)
            _log.warning(
                "region '%s': %s attention cannot take these shapes, %s runs",
                self._region,
                self._backends[0],
                name,
            )
        return name

    def _check(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, mask: torch.Tensor | None) -> None:
        """Refuse shapes that are no attention."""
        is_good = (
            q.dim() == k.dim() == v.dim() == 4
            and k.shape[1] == v.shape[1] > 0
            and q.shape[1] % k.shape[1] == 0
            and q.shape[3] == k.shape[3]
            and k.shape[2] == v.shape[2]
            and len({tensor.shape[0] for tensor in (q, k, v)} - {1}) <= 1
        )
        if is_good and mask is not None:
            scores = (max(q.shape[0], k.shape[0], v.shape[0]), *q.shape[1:3], k.shape[2])
            sizes = zip(reversed(mask.shape), reversed(scores), strict=False)
            is_good = mask.dim() <= 4 and all(size in (1, whole) for size, whole in sizes)
        if not is_good:
            shapes = ", ".join(
                f"{name} {list(tensor.shape)}"
                for name, tensor in (("q", q), ("k", k), ("v", v), ("mask", mask))
                if tensor is not None
            )
            raise DataError(
                f"cannot attend in region '{self._region}'",
                got=shapes,
                expected="q [B, H, S, D], k [B, H, T, D], v [B, H, T, E], mask broadcasting to [B, H, S, T]",
            )


def _prepared_mask(mask: torch.Tensor, T: int, dtype: torch.dtype) -> torch.Tensor:
    """The mask with four axes, of the type of q, its last axis dense, as the fused kernels want it."""
    mask = mask[(None,) * (4 - mask.dim())]
    if mask.dtype != dtype and mask.is_floating_point():
        # What is finite stays finite: an exported "minus infinity" is often float32's lowest number.
        is_forbidden = mask == -torch.inf
        mask = mask.clamp(min=torch.finfo(dtype).min).to(dtype).masked_fill_(is_forbidden, -torch.inf)
    mask = mask.to(dtype)
    mask = mask.expand(-1, -1, -1, T)
    return mask if mask.stride(-1) == 1 or T == 1 else mask.contiguous()


def _causal_mask(S: int, T: int, like: torch.Tensor) -> torch.Tensor:
    """[S, T]: -inf where a key comes after the query."""
    return torch.full((S, T), -math.inf, dtype=like.dtype, device=like.device).triu_(1)


def _packed(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor, copied to [B, S, H, D] in memory when a fused kernel could not read its rows.

    Rows are dense, and begin at multiples of 16 bytes when their size is one; others are padded by torch.
    """
    unit = _ROW_BYTES // tensor.element_size()
    is_dense = tensor.stride(-1) == 1 or tensor.shape[-1] == 1
    steps = [stride for stride, size in zip(tensor.stride()[:-1], tensor.shape[:-1], strict=True) if size > 1]
    is_aligned = tensor.storage_offset() % unit == 0 and all(step % unit == 0 for step in steps)
    if is_dense and (is_aligned or tensor.shape[-1] % unit):
        return tensor
    # Not contiguous(), which leaves alone what is dense and not aligned.
    return tensor.transpose(1, 2).clone(memory_format=torch.contiguous_format).transpose(1, 2)
