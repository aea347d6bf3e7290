# SPDX-License-Identifier: Apache-2.0
"""One way to run a model: as it is named, as it is open, or why it cannot be."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from quantrt.dtypes import CODE_PRECISIONS
from quantrt.plan.plan import ExecOptions, LibraryModel
from quantrt.quantize.fit.fit import Fitted
from quantrt.runtime.executor import Executor, ReportsMemory

__all__ = ["Candidate", "Rejected", "Spec"]


@dataclass(frozen=True)
class Spec:
    """One way to run a model.

    Attributes:
        library: "onnxruntime", "openvino" or "cuda".
        precision: "fp32", "fp16", "bf16", "int8" or "fp8"; "int4" for weights alone.
        float_precision: what the layers outside int8 or fp8 compute in.
        is_mixed: of int8, that some layers stay float that need not.
        float_attention: of codes on a GPU, that attention makes none of the floats that it reads.
    """

    library: str
    precision: str
    float_precision: str = "fp32"
    is_mixed: bool = False
    float_attention: bool = False

    @property
    def has_codes(self) -> bool:
        """Whether it is for a quantized model."""
        return self.precision in CODE_PRECISIONS

    @property
    def name(self) -> str:
        """For example `openvino int8+bf16`."""
        mixed = self.has_codes and self.float_precision != "fp32"
        floats = f"+{self.float_precision}" if mixed else ""
        return f"{self.library} {self.precision}{floats}{' mixed' if self.is_mixed else ''}"


@dataclass(frozen=True)
class Candidate:
    """A spec, made and opened.

    Attributes:
        fitted: the quantized model behind it; None for a float one.
        kept_float: names of the products that ONNX Runtime would make int8 by itself, and does not here.
    """

    spec: Spec
    model: LibraryModel
    options: ExecOptions
    executor: Executor
    fitted: Fitted | None
    kept_float: tuple[str, ...] = ()

    def memory_report(self) -> Mapping[str, Any] | None:
        """What it takes of a GPU's memory for what it ran so far; None for libraries of the CPU."""
        return self.executor.memory_report() if isinstance(self.executor, ReportsMemory) else None


@dataclass(frozen=True)
class Rejected:
    """A spec that cannot be run here, and why.

    Attributes:
        status: "left out" of one that could, and need not.
        hint: what to try.
    """

    spec: Spec
    reason: str
    status: str = "rejected"
    hint: str | None = None
