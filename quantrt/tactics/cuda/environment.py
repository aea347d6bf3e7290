# SPDX-License-Identifier: Apache-2.0
"""Everything beside the work itself that changes how long kernels take."""

from __future__ import annotations

import importlib.metadata

import torch

from quantrt.device import describe_device
from quantrt.gpu import GpuFacts
from quantrt.source_digest import source_digest

__all__ = ["timing_environment"]

SOURCES = ("kernels", "runtime/cuda", "tactics/cuda")
"""Folders whose code makes or launches kernels."""


def timing_environment(gpu: GpuFacts) -> dict[str, str]:
    """The environment of timings on `gpu`, as text by name; "none" for what is not installed."""
    return {
        "gpu": gpu.name,
        "capability": f"{gpu.capability // 10}.{gpu.capability % 10}",
        "driver": _driver(),
        "cuda": torch.version.cuda or "none",
        "torch": str(torch.__version__),
        "cudnn": str(torch.backends.cudnn.version() or "none"),  # type: ignore[no-untyped-call]
        "triton": _version("triton"),
        "quantrt": _version("quantrt"),
        "sources": source_digest(SOURCES),
    }


def _driver() -> str:
    """The driver's version; "none" where there is no GPU."""
    gpus = describe_device()["gpu"] if torch.cuda.is_available() else None
    return str(gpus[0]["driver"]) if gpus else "none"


def _version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "none"
