# SPDX-License-Identifier: Apache-2.0
"""This machine as an engine of one library sees it."""

from __future__ import annotations

from typing import Any

from quantrt.device import describe_device

__all__ = ["describe_machine"]


def describe_machine(library: str) -> dict[str, Any]:
    """Facts as `quantrt.device.describe_device` gives them; for "cuda", of all GPUs the one that is used.

    Raises:
        DeviceError: the library is "cuda", and there is no usable GPU.
    """
    facts = describe_device(with_gpu=False)
    if library != "cuda":
        return facts
    from quantrt.runtime.cuda.device.local_gpu import gpu_row  # imports torch, which is optional

    return {**facts, "gpu": [gpu_row()]}
