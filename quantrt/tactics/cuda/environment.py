# SPDX-License-Identifier: Apache-2.0
"""Everything beside the work itself that changes how long kernels take."""

from __future__ import annotations

import hashlib
import importlib.metadata
from pathlib import Path

import torch

from quantrt.device import describe_device
from quantrt.gpu import GpuFacts

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
        "sources": _digest(Path(__file__).parents[2]),
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


def _digest(package: Path) -> str:
    """A digest of the code that timings depend on, so that a changed kernel is timed again."""
    digest = hashlib.sha256()
    for folder in SOURCES:
        for path in sorted((package / folder).rglob("*.py")):
            digest.update(str(path.relative_to(package)).encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()[:16]
