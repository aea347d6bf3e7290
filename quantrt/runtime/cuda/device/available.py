# SPDX-License-Identifier: Apache-2.0
"""Whether a GPU can be used here, and what is missing. Imports no library before it is known to be there."""

from __future__ import annotations

import importlib.util
from typing import TYPE_CHECKING

from quantrt.errors import DeviceError

if TYPE_CHECKING:
    import torch

__all__ = ["check_gpu", "open_device"]


def check_gpu(*, compiles: bool) -> None:
    """Fail unless programs can run on a GPU here.

    Args:
        compiles: whether kernels are to be compiled too; running them needs no compiler.

    Raises:
        DeviceError: a package is not installed, or there is no usable GPU.
    """
    for package in ("torch", "triton") if compiles else ("torch",):
        if importlib.util.find_spec(package) is None:
            raise DeviceError(
                f"cannot use a GPU: the package '{package}' is not installed here",
                hint="`pip install 'quantrt[cuda]'`",
            )
    open_device("cuda")


def open_device(name: str) -> torch.device:
    """The device of a name, with its number.

    Raises:
        DeviceError: torch sees no such GPU.
    """
    import torch  # optional, and slow to import

    if name == "cpu":
        return torch.device("cpu")
    try:
        device = torch.device(name)
        found: torch.device = torch.empty(0, device=device).device
    except (RuntimeError, AssertionError) as error:
        raise DeviceError(
            f"this machine has no usable GPU: torch {torch.__version__} sees no device '{name}'",
            got=str(error).partition("\n")[0],
            hint="`quantrt doctor`, which tells what is there",
        ) from error
    return found
