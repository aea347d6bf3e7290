# SPDX-License-Identifier: Apache-2.0
"""QuantRT: from an ONNX model to a verified quantized inference engine.

The names below are loaded at first use, so that `import quantrt` and `quantrt -h` cost no library.

Nothing here sends anything anywhere. ONNX Runtime and OpenVINO report their use unless they are told not to
before they are imported, so they are told here: OpenVINO 2026.4 sends an event whenever it is imported, which
takes time of every command, and where HOME cannot be written both print warnings. ORT_DISABLE_TELEMETRY,
where it is set, and an `openvino_telemetry` that was imported before stay as they are.
"""

from __future__ import annotations

import importlib
import os
import sys
import types
from typing import TYPE_CHECKING, Any

from quantrt.version import __version__ as __version__

if TYPE_CHECKING:
    from quantrt.build import build as build
    from quantrt.calibrate.stats import Stats as Stats
    from quantrt.calibrate.stats import load_stats as load_stats
    from quantrt.config import Budget as Budget
    from quantrt.config import BuildConfig as BuildConfig
    from quantrt.errors import AccuracyError as AccuracyError
    from quantrt.errors import DataError as DataError
    from quantrt.errors import DeviceError as DeviceError
    from quantrt.errors import InternalError as InternalError
    from quantrt.errors import ModelError as ModelError
    from quantrt.errors import QuantRtError as QuantRtError
    from quantrt.errors import UsageError as UsageError
    from quantrt.qdq_model.make import QdqModel as QdqModel
    from quantrt.qdq_model.make import quantize_model as quantize_model
    from quantrt.report.report import Report as Report
    from quantrt.report.report import make_report as make_report
    from quantrt.runtime.engine import Engine as Engine
    from quantrt.runtime.engine import load as load

os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
sys.modules.setdefault(
    "openvino_telemetry", types.ModuleType("openvino_telemetry", "Empty: nothing is sent.")
)

_HOMES = {
    "AccuracyError": "quantrt.errors",
    "Budget": "quantrt.config",
    "BuildConfig": "quantrt.config",
    "DataError": "quantrt.errors",
    "DeviceError": "quantrt.errors",
    "Engine": "quantrt.runtime.engine",
    "InternalError": "quantrt.errors",
    "ModelError": "quantrt.errors",
    "QdqModel": "quantrt.qdq_model.make",
    "QuantRtError": "quantrt.errors",
    "Report": "quantrt.report.report",
    "Stats": "quantrt.calibrate.stats",
    "UsageError": "quantrt.errors",
    "build": "quantrt.build",
    "load": "quantrt.runtime.engine",
    "load_stats": "quantrt.calibrate.stats",
    "make_report": "quantrt.report.report",
    "quantize_model": "quantrt.qdq_model.make",
}
"""Public name -> the module that defines it."""

__all__ = [
    "AccuracyError",
    "Budget",
    "BuildConfig",
    "DataError",
    "DeviceError",
    "Engine",
    "InternalError",
    "ModelError",
    "QdqModel",
    "QuantRtError",
    "Report",
    "Stats",
    "UsageError",
    "__version__",
    "build",
    "load",
    "load_stats",
    "make_report",
    "quantize_model",
]


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'quantrt' has no attribute '{name}'")
    value = getattr(importlib.import_module(home), name)
    setattr(sys.modules[__name__], name, value)
    return value


def __dir__() -> list[str]:
    return sorted(__all__)


class _Package(types.ModuleType):
    """The package's own module type: importing the file build.py must not hide the function `build`.

    Python binds a freshly imported submodule to its name in the package; for `build` that name is the
    function's.
    """

    def __setattr__(self, name: str, value: Any) -> None:
        """Bind `name`; in place of the module `build`, its function."""
        if name == "build" and isinstance(value, types.ModuleType):
            value = value.build
        super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package
