# SPDX-License-Identifier: Apache-2.0
"""Where codes of a type can be read and written."""

from __future__ import annotations

from collections.abc import Collection

from quantrt.dtypes import FP8
from quantrt.gpu import GpuFacts

__all__ = ["why_not_fp8"]


def why_not_fp8(dtypes: Collection[str], device: GpuFacts) -> str | None:
    """Why kernels cannot convert FP8 codes among these element types on a device; None when they can.

    Args:
        dtypes: of all tensors that a kernel reads and writes.
    """
    if FP8.name in dtypes and not device.has_fp8_tensor_cores:
        return f"no fp8 codes on compute capability {device.capability}: 89 is the least"
    return None
