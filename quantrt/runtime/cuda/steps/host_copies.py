# SPDX-License-Identifier: Apache-2.0
"""Tensors that steps make from host memory, made once and used again.

A copy from pageable memory makes the host wait, which a CUDA graph cannot record. What steps copy to a device
depends on the shapes of the inputs alone, so that a second pass over the same shapes makes the same
copies in the same order: it is given those of the first.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from quantrt.errors import InternalError

__all__ = ["RecordCopies", "ReuseCopies"]

_FACTORIES = (torch.tensor, torch.as_tensor, torch.Tensor.new_tensor)
_MOVES = (torch.Tensor.to, torch.Tensor.cuda)


class RecordCopies(TorchFunctionMode):
    """Keeps every tensor that is copied from host memory to a device.

    Attributes:
        copies: in the order they were made.
    """

    def __init__(self) -> None:
        super().__init__()
        self.copies: list[torch.Tensor] = []

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        """Call `func`, and keep its result where it is such a copy."""
        result = func(*args, **(kwargs or {}))
        if _copies(func, args, kwargs or {}):
            self.copies.append(result)
        return result


class ReuseCopies(TorchFunctionMode):
    """Gives the tensors of a `RecordCopies` to the same calls in the same order."""

    def __init__(self, copies: Sequence[torch.Tensor]) -> None:
        super().__init__()
        self._copies = iter(copies)

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        """Call `func`, or return what it returned the first time."""
        if not _copies(func, args, kwargs or {}):
            return func(*args, **(kwargs or {}))
        copy = next(self._copies, None)
        if copy is None or (func in _MOVES and copy.shape != args[0].shape):
            raise InternalError(
                "a step copies other values to the device than it did for the same shapes",
                got=getattr(func, "__name__", str(func)),
                expected="no such copy" if copy is None else f"one of shape {list(copy.shape)}",
            )
        return copy


def _copies(func: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any]) -> bool:
    """Whether a call reads host memory and makes a tensor elsewhere."""
    if func in _MOVES:
        if args[0].device.type != "cpu":
            return False
        return func is torch.Tensor.cuda or any(_is_elsewhere(x) for x in (*args[1:], *kwargs.values()))
    if func not in _FACTORIES:
        return False
    if func is torch.as_tensor and isinstance(args[0], torch.Tensor) and args[0].device.type != "cpu":
        return False
    if "device" in kwargs and kwargs["device"] is not None:
        return _is_elsewhere(kwargs["device"])
    return func is torch.Tensor.new_tensor and args[0].device.type != "cpu"


def _is_elsewhere(target: Any) -> bool:
    """Whether an argument names a device that is not the CPU: a device, its name or number, or a tensor."""
    if isinstance(target, torch.Tensor):
        return target.device.type != "cpu"
    if isinstance(target, torch.device):
        return target.type != "cpu"
    if isinstance(target, str):
        return torch.device(target).type != "cpu"
    return isinstance(target, int) and not isinstance(target, bool)
