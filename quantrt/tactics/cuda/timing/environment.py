# SPDX-License-Identifier: Apache-2.0
"""Everything beside the work itself that changes how long kernels take."""

from __future__ import annotations

import importlib.metadata
import re
from pathlib import Path

import torch

from quantrt.device import describe_device
from quantrt.gpu import GpuFacts
from quantrt.source_digest import source_digest

__all__ = ["timing_environment"]

SOURCES = ("kernels", "runtime/cuda", "tactics/cuda")
"""Folders whose code makes or launches kernels."""

LOADED = Path("/proc/driver/nvidia/version")
"""Where Linux tells the driver's version at once; nvidia-smi takes up to a second."""


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
    if not torch.cuda.is_available():
        return "none"
    loaded = _loaded_driver(LOADED.read_text()) if LOADED.exists() else None
    if loaded is not None:
        return loaded
    gpus = describe_device()["gpu"]
    return str(gpus[0]["driver"]) if gpus else "none"


def _loaded_driver(text: str) -> str | None:
    """The version in what the kernel module tells of itself; None where it is not there."""
    found = re.search(r"Kernel Module.*?\s(\d+(?:\.\d+)+)\s", text)
    return None if found is None else found.group(1)


def _version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "none"
