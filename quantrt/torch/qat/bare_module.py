# SPDX-License-Identifier: Apache-2.0
"""The module that is to be trained, out of what training loops wrap around it."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from quantrt.errors import UsageError
from quantrt.torch.qat.prepared import PreparedModel

__all__ = ["bare_module"]

_IN_PARALLEL = (nn.DataParallel, nn.parallel.DistributedDataParallel)
_SHORT_FLOATS = (torch.float16, torch.bfloat16)


def bare_module(model: Any) -> nn.Module:
    """What `torch.compile`, DataParallel and DistributedDataParallel were given; others as they are.

    Raises:
        UsageError: it is no module, is prepared already, or has parameters of 16 bits.
    """
    while isinstance(model, _IN_PARALLEL) or hasattr(model, "_orig_mod"):
        model = model.module if isinstance(model, _IN_PARALLEL) else model._orig_mod
    if not isinstance(model, nn.Module):
        raise UsageError(
            "cannot prepare what is no module", got=type(model).__name__, expected="a torch.nn.Module"
        )
    if isinstance(model, PreparedModel):
        raise UsageError(
            "cannot prepare a module twice",
            got="what `prepare` returned",
            hint="`prepare(net, ...)` of your own module, and `load_state_dict` to go on where it was",
        )
    short = next((name for name, value in model.named_parameters() if value.dtype in _SHORT_FLOATS), None)
    if short is not None:
        raise UsageError(
            "cannot train steps of codes in 16-bit floats",
            got=f"parameter '{short}' of {model.get_parameter(short).dtype}",
            expected="torch.float32",
            hint="`model.float()`, and `torch.autocast` around the forward",
        )
    return model
