# SPDX-License-Identifier: Apache-2.0
"""What could run a model on this CPU: libraries x precisions, each opened or rejected with a reason."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import onnx_ir as ir

from quantrt.config import BuildConfig
from quantrt.errors import QuantRtError
from quantrt.plan.lower import lower_to_onnxruntime, lower_to_openvino
from quantrt.plan.plan import ExecOptions, LibraryModel
from quantrt.quantize.fit import Fitted
from quantrt.quantize.qdq import write
from quantrt.quantize.target import Target
from quantrt.quantize.targets.onnxruntime import ORT
from quantrt.quantize.targets.openvino import OPENVINO
from quantrt.runtime.executor import Executor, open_executor

__all__ = ["Candidate", "Rejected", "Spec", "int8_target", "list_specs", "open_candidate"]

log = logging.getLogger(__name__)

LOWERINGS: Mapping[str, Callable[[ir.Model], LibraryModel]] = {
    "onnxruntime": lower_to_onnxruntime,
    "openvino": lower_to_openvino,
}


@dataclass(frozen=True)
class Spec:
    """One way to run a model.

    Attributes:
        library: "onnxruntime" or "openvino".
        precision: "fp32", "bf16" or "int8".
        float_precision: what the layers outside int8 compute in.
    """

    library: str
    precision: str
    float_precision: str = "fp32"

    @property
    def name(self) -> str:
        """For example `openvino int8+bf16`."""
        mixed = self.precision == "int8" and self.float_precision != "fp32"
        return f"{self.library} {self.precision}" + (f"+{self.float_precision}" if mixed else "")


@dataclass(frozen=True)
class Candidate:
    """A spec, made and opened.

    Attributes:
        fitted: the quantized model behind it; None for a float one.
    """

    spec: Spec
    model: LibraryModel
    options: ExecOptions
    executor: Executor
    fitted: Fitted | None


@dataclass(frozen=True)
class Rejected:
    """A spec that cannot be run here, and why."""

    spec: Spec
    reason: str


def list_specs(config: BuildConfig, device: Mapping[str, Any]) -> tuple[Spec, ...]:
    """Every spec that the config allows and this CPU can run, FP32 always among them."""
    return tuple(_specs(config, {str(flag) for flag in device.get("isa", ())}))


def _specs(config: BuildConfig, isa: set[str]) -> Iterator[Spec]:
    has_bf16 = bool(isa & {"avx512_bf16", "amx_bf16", "neon_bf16", "sve_bf16"})
    for library in config.device.libraries:
        yield Spec(library, "fp32")
        if "int8" in config.precisions:
            yield Spec(library, "int8")
        # ONNX Runtime's CPU provider has no bfloat16 kernels for whole models.
        if "bf16" in config.precisions and library == "openvino" and has_bf16:
            yield Spec(library, "bf16", "bf16")
            if "int8" in config.precisions:
                yield Spec(library, "int8", "bf16")


def int8_target(library: str, device: Mapping[str, Any]) -> Target:
    """The placement rules for int8 in one library on one CPU.

    x86 CPUs without VNNI add pairs of u8 x s8 products in 16 bits, which saturate: there ONNX Runtime's
    weights keep to 7 bits (its documentation calls this reduce_range). OpenVINO handles it by itself.
    """
    if library == "openvino":
        return OPENVINO
    isa = {str(flag) for flag in device.get("isa", ())}
    saturates = "avx2" in isa and not isa & {"avx512_vnni", "avx_vnni", "amx_int8"}
    return replace(ORT, weight_qmax=63) if saturates else ORT


def open_candidate(
    spec: Spec, graph: ir.Model, fitted: Fitted | None, config: BuildConfig, outputs: Sequence[str]
) -> Candidate | Rejected:
    """Lower and open one spec; a library that refuses the model is a rejection, not an error.

    Args:
        graph: the canonical float graph, for float specs.
        fitted: the quantized model, for int8 specs.
        outputs: the engine's outputs, in order.
    """
    options = ExecOptions(
        threads=config.device.threads, hint=config.device.hint, float_precision=spec.float_precision
    )
    try:
        lowered = LOWERINGS[spec.library](graph if fitted is None else write(fitted.model))
        executor = open_executor(lowered, options, output_names=outputs)
    except QuantRtError as error:
        log.info("%s cannot run this model: %s", spec.name, error.message)
        return Rejected(spec, error.message)
    return Candidate(spec, lowered, options, executor, fitted)
