# SPDX-License-Identifier: Apache-2.0
"""Plans of cuDNN's that are kept from one build to the next, in a file beside the timing cache.

    {"format": "quantrt cudnn plans", "version": 1,
     "plans": {key: {"cudnn": 91900, "gpu": "NVIDIA H200", "workspace_bytes": 0, "data": base64 of zlib}}}

Making the same plan twice takes seconds and gives other bytes. Plans of another cuDNN or GPU are of no use;
they are kept until the same graph has a plan here. The same plans give the same bytes.
"""

from __future__ import annotations

import base64
import binascii
import json
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from quantrt.errors import DataError
from quantrt.ir.atomic import replace_file
from quantrt.plan.cudnn_plan import CudnnPlan

__all__ = ["load_plans", "path_beside", "save_plans"]

FORMAT = "quantrt cudnn plans"
VERSION = 1
MAX_FILE_BYTES = 2**28
MAX_PLAN_BYTES = 2**26
SUFFIX = ".plans"


def path_beside(timing_cache: str) -> Path:
    """Where the plans of the builds with a timing cache are."""
    return Path(timing_cache + SUFFIX)


def load_plans(path: Path) -> dict[str, CudnnPlan]:
    """All plans in a file, by key; none where there is no file.

    Raises:
        DataError: the file is none of plans, or is damaged; names it.
    """
    if not path.exists():
        return {}
    try:
        with path.open("rb") as file:
            raw = file.read(MAX_FILE_BYTES + 1)
    except OSError as error:
        raise _damaged(path, str(error.strerror)) from error
    if len(raw) > MAX_FILE_BYTES:
        raise _damaged(path, f"more than {MAX_FILE_BYTES} bytes")
    try:
        data = json.loads(raw)
        if data["format"] != FORMAT or data["version"] != VERSION:
            raise ValueError(f"{data['format']}, version {data['version']}")
        return {str(key): _plan(row) for key, row in data["plans"].items()}
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError, zlib.error) as error:
        raise _damaged(path, f"{type(error).__name__}: {error}") from error


def save_plans(plans: Mapping[str, CudnnPlan], path: Path) -> None:
    """Write the plans, wholly or not at all.

    Raises:
        DeviceError: the file cannot be written.
    """
    rows = {key: _row(plan) for key, plan in sorted(plans.items())}
    text = json.dumps({"format": FORMAT, "version": VERSION, "plans": rows}, indent=1)
    with replace_file(path) as file:
        file.write(text.encode() + b"\n")


def _row(plan: CudnnPlan) -> dict[str, Any]:
    data = base64.b64encode(zlib.compress(plan.data, 9)).decode("ascii")
    return {
        "cudnn": plan.cudnn,
        "gpu": plan.gpu,
        "workspace_bytes": plan.workspace_bytes,
        "data": data,
    }


def _plan(row: Any) -> CudnnPlan:
    numbers = row["workspace_bytes"], row["cudnn"]
    if not all(type(number) is int and number >= 0 for number in numbers) or not isinstance(row["gpu"], str):
        raise ValueError(f"a plan of cuDNN {row['cudnn']!r} for {row['gpu']!r}")
    try:
        packed = base64.b64decode(row["data"], validate=True)
    except binascii.Error as error:
        raise ValueError(str(error)) from error
    reader = zlib.decompressobj()
    data = reader.decompress(packed, MAX_PLAN_BYTES)
    if not reader.eof or reader.unused_data:
        raise ValueError("a plan that is cut off, or too large")
    return CudnnPlan(data, *numbers, row["gpu"])


def _damaged(path: Path, got: str) -> DataError:
    return DataError(
        f"cannot read the plans of cuDNN in '{path}'",
        got=got[:200],
        hint=f"deleting '{path}': it is made anew",
    )
