# SPDX-License-Identifier: Apache-2.0
"""The options of each stage, one frozen dataclass each; with every default.

Those of calibration and quantization are in `quantize_config`, those of a GPU's kernels in `cuda_config`, the
accuracy budget in `budget`.

The command line makes one option group of each class: a field's `metadata["help"]` is the help text,
`metadata["choices"]` the accepted values, `metadata["metavar"]` the placeholder.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from quantrt.budget import Budget, MetricFunction, name_of
from quantrt.cuda_config import TACTIC_SOURCES, CudaConfig
from quantrt.dtypes import CODE_PRECISIONS
from quantrt.errors import UsageError
from quantrt.option_checks import check_choice, check_positive, check_type
from quantrt.quantize_config import (
    DEFAULT_GROUP_SIZE,
    QUANTIZATION_LEVELS,
    RANGE_METHODS,
    CalibrationConfig,
    QuantizeConfig,
    option,
)

__all__ = [
    "CONFIG_VERSION",
    "DEFAULT_GROUP_SIZE",
    "DEFAULT_MIN_SQNR_DB",
    "QUANTIZATION_LEVELS",
    "RANGE_METHODS",
    "TACTIC_SOURCES",
    "AssignConfig",
    "BenchConfig",
    "BindingConfig",
    "Budget",
    "BuildConfig",
    "CalibrationConfig",
    "CompareConfig",
    "ConstraintConfig",
    "CudaConfig",
    "DeviceConfig",
    "LayerTimingConfig",
    "MetricFunction",
    "QuantizeConfig",
    "ReportConfig",
    "to_dict",
]

CONFIG_VERSION = 1

DEFAULT_MIN_SQNR_DB = 20.0
"""Noise of 1 % of the signal's power, as the default of `Budget.max_drop_ratio`."""

TARGETS = ("ort", "openvino", "tensorrt")
LIBRARIES = ("onnxruntime", "openvino")
PRECISIONS = ("fp32", "fp16", "bf16", *CODE_PRECISIONS)
DEVICES = ("cpu", "cuda")
HISTOGRAMS = ("auto", "always", "never")
ENGINE_ROUNDS = 4
FILE_ROUNDS = 8


@dataclass(frozen=True, kw_only=True)
class BindingConfig:
    """In which element types and layouts callers pass inputs and get outputs; by default the model's own."""

    input_types: tuple[str, ...] = option(
        (),
        "take inputs in these types, as in images:fp16,ids:int32; names may hold *, a type alone is for all; "
        "fp32, fp16, bf16, int8 (codes, their scale from calibration or as in int8@0.0078), uint8, int32, "
        "int64, bool",
        metavar="NAME:TYPE",
        flag="--input-types",
        has_commas=True,
    )
    output_types: tuple[str, ...] = option(
        (),
        "give outputs in these types, as in logits:fp16",
        metavar="NAME:TYPE",
        flag="--output-types",
        has_commas=True,
    )
    input_layouts: tuple[str, ...] = option(
        (),
        "take inputs with their axes in this order, as in images:nhwc; also ndhwc, nchw4, nchw32, ...",
        metavar="NAME:LAYOUT",
        flag="--input-layouts",
        has_commas=True,
    )
    output_layouts: tuple[str, ...] = option(
        (),
        "give outputs with their axes in this order, as in mask:nhwc",
        metavar="NAME:LAYOUT",
        flag="--output-layouts",
        has_commas=True,
    )


@dataclass(frozen=True, kw_only=True)
class ConstraintConfig:
    """What single layers have to be."""

    layer_output_types: tuple[str, ...] = option(
        (),
        "store what these layers make in this type, as in /layer1/conv:fp32; names may hold *, the last that "
        "names a layer counts; fp32, and on a GPU fp16, bf16, int8; a rule that cannot be kept is an error",
        metavar="LAYER:TYPE",
        flag="--layer-output-types",
        has_commas=True,
    )
    prefer_layer_output_types: bool = option(
        False, "go on where a layer cannot have its type; the report says which and why"
    )
    layer_precisions: tuple[str, ...] = option(
        (),
        "run these layers in this precision, as in /head/*:fp32; names may hold *, the last rule that names "
        "a layer counts; a float keeps a layer out of codes, codes are asked of what is shipped; a rule that "
        "is not kept is an error",
        metavar="LAYER:PRECISION",
        flag="--layer-precisions",
        has_commas=True,
    )
    prefer_layer_precisions: bool = option(
        False, "go on where a layer cannot have its precision; the report says which and why"
    )


@dataclass(frozen=True, kw_only=True)
class DeviceConfig:
    """Where the engine runs."""

    device: str = option("cpu", "device to build for", choices=DEVICES)
    threads: int | None = option(None, "threads per run (default: all physical cores)", metavar="N")
    hint: str = option("latency", "what the library is tuned for", choices=("latency", "throughput"))
    libraries: tuple[str, ...] = option(
        LIBRARIES, "libraries to try on a CPU, repeatable (default: all installed)", choices=LIBRARIES
    )

    def __post_init__(self) -> None:
        check_choice("device", self.device, DEVICES)
        check_choice("hint", self.hint, ("latency", "throughput"))
        for library in self.libraries:
            check_choice("library", library, LIBRARIES)
        if self.threads is not None:
            check_positive("number of threads", self.threads)


@dataclass(frozen=True, kw_only=True)
class AssignConfig:
    """How precisions are mixed where neither all of int8 or fp8 nor none of it is the best."""

    mixed: bool = option(
        True, "leave single regions float where that is faster, or all of 8 bits is outside the budget"
    )
    bf16_beside_int8: bool = option(True, "on a CPU that has bf16, --int8 tries it for what stays float")
    assign_rounds: int | None = option(
        None,
        f"mixed engines that are built and measured, at most (default: {ENGINE_ROUNDS}; of Q/DQ files, which "
        f"are not timed, {FILE_ROUNDS})",
        metavar="N",
    )
    sensitivity_samples: int = option(16, "samples that damage is measured on", metavar="N")
    tables: str | None = option(
        None, "write damages and times to this JSON file, and read damages that are there", metavar="FILE"
    )

    def __post_init__(self) -> None:
        if self.assign_rounds is not None:
            check_positive("number of rounds", self.assign_rounds)
        check_positive("number of samples", self.sensitivity_samples)


@dataclass(frozen=True, kw_only=True)
class BenchConfig:
    """How long and how often something is timed."""

    batch: int | None = option(None, "batch size of the timed input (default: 1)", metavar="N")
    warmup_s: float = option(0.5, "untimed seconds before measuring", metavar="S")
    duration_s: float = option(
        3.0,
        "timed seconds per candidate, at least (builds: an eighth, less where one wins; a GPU: a thirtieth)",
        metavar="S",
    )
    min_runs: int = option(30, "timed runs per candidate, at least", metavar="N")
    max_duration_s: float = option(60.0, "timed seconds per candidate, at most", metavar="S")

    def __post_init__(self) -> None:
        if self.batch is not None:
            check_positive("batch size", self.batch)
        check_positive("number of runs", self.min_runs)
        if self.max_duration_s < self.duration_s:
            raise UsageError(
                "cannot time with these bounds",
                got=f"at most {self.max_duration_s} s",
                expected=f"no less than the {self.duration_s} s asked for",
            )


@dataclass(frozen=True, kw_only=True)
class CompareConfig:
    """How close two models' outputs have to be; limits that are None are not checked.

    When no limit is given at all, `min_sqnr_db` is `DEFAULT_MIN_SQNR_DB`.
    """

    min_sqnr_db: float | None = option(
        None, "least signal to noise ratio of each output (default: 20, without another limit)", metavar="DB"
    )
    min_cosine: float | None = option(None, "least cosine of each output", metavar="C")
    max_abs: float | None = option(None, "largest absolute difference of each output", metavar="A")
    max_samples: int | None = option(None, "use at most this many samples (default: all)", metavar="N")
    batch_size: int = option(8, "samples per run where shapes allow", metavar="N")

    def __post_init__(self) -> None:
        if self.min_sqnr_db is None and self.min_cosine is None and self.max_abs is None:
            object.__setattr__(self, "min_sqnr_db", DEFAULT_MIN_SQNR_DB)
        if self.min_cosine is not None and not -1.0 <= self.min_cosine <= 1.0:
            raise UsageError("cannot use this cosine limit", got=str(self.min_cosine), expected="-1 to 1")
        if self.max_abs is not None and not self.max_abs >= 0.0:
            raise UsageError("cannot use this limit", got=f"max abs {self.max_abs}", expected="0 or more")
        if self.max_samples is not None:
            check_positive("number of samples", self.max_samples)
        check_positive("batch size", self.batch_size)


@dataclass(frozen=True, kw_only=True)
class LayerTimingConfig:
    """How often an engine is run to time its layers."""

    layer_runs: int = option(20, "timed runs of the layers", metavar="N")
    warmup_runs: int = option(3, "untimed runs before them", metavar="N")

    def __post_init__(self) -> None:
        check_positive("number of runs", self.layer_runs)
        if self.warmup_runs < 0:
            raise UsageError(
                "cannot use this number of runs", got=str(self.warmup_runs), expected="0 or more"
            )


@dataclass(frozen=True, kw_only=True)
class ReportConfig:
    """What an engine file keeps for reports alone."""

    histograms: str = option(
        "auto",
        "keep a small histogram of every quantized tensor for `quantrt report`; auto keeps them while they "
        "are at most 1 %% of the engine",
        choices=HISTOGRAMS,
    )

    def __post_init__(self) -> None:
        check_choice("value for histograms", self.histograms, HISTOGRAMS)


@dataclass(frozen=True, kw_only=True)
class BuildConfig:
    """Everything `build` needs to know, stage by stage.

    Attributes:
        precisions: what is tried, of "fp32", "fp16", "bf16", "int8" and "fp8".
        calibration, quantize: how ranges are found and what is made of them.
        device: what is built for, on how many threads.
        cuda: kernels and shapes of engines for a GPU.
        budget: what accuracy may be lost.
        assign: how precisions are mixed.
        bench: at which batch size candidates are timed, and for how long.
        report: what the engine keeps for reports.
        bindings: element types and layouts of inputs and outputs.
        constraints: types and precisions of single layers.

    Each is a dataclass of `quantrt.config` or `quantrt.quantize_config` that says what its options mean; an
    option of the command line has the same name.

    Raises:
        UsageError: options that do not go together.
    """

    precisions: frozenset[str] = frozenset({"fp32"})
    calibration: CalibrationConfig = field(default_factory=CalibrationConfig)
    quantize: QuantizeConfig = field(default_factory=QuantizeConfig)
    device: DeviceConfig = field(default_factory=DeviceConfig)
    cuda: CudaConfig = field(default_factory=CudaConfig)
    budget: Budget = field(default_factory=Budget)
    assign: AssignConfig = field(default_factory=AssignConfig)
    bench: BenchConfig = field(default_factory=BenchConfig)
    report: ReportConfig = field(default_factory=ReportConfig)
    bindings: BindingConfig = field(default_factory=BindingConfig)
    constraints: ConstraintConfig = field(default_factory=ConstraintConfig)

    def __post_init__(self) -> None:
        for part in dataclasses.fields(self):
            kind: object = part.default_factory
            if isinstance(kind, type) and dataclasses.is_dataclass(kind):
                check_type(f"{part.name} of a build", getattr(self, part.name), kind)
        for precision in self.precisions:
            check_choice("precision", precision, PRECISIONS)
        for precision, other in (("fp16", "bf16"), ("fp8", "int8")):
            if precision in self.precisions and self.device.device == "cpu":
                lacks = f"no library here computes in {precision} on a CPU"
                raise UsageError(lacks, hint=f"--{other}, or --device cuda")
        if self.device.device == "cpu" and (self.cuda.targets or self.cuda.gpu or self.cuda.remove_padding):
            raise UsageError("targets, a GPU and removed padding are of CUDA engines", hint="--device cuda")
        if self.device.device == "cpu" and self.cuda.device_memory_mb is not None:
            raise UsageError("device memory is a GPU's", hint="--device cuda")
        if self.device.device == "cpu" and self.cuda.tuning_time_s is not None:
            raise UsageError("tuning time is of a GPU's kernels", hint="--device cuda, or --duration 1")
        if self.quantize.weights == "int4":
            self._check_weights_alone()
        if self.cuda.profiles and self.bench.batch is not None:
            raise UsageError(
                "cannot time at one batch size and choose kernels at another",
                got=f"batch {self.bench.batch} and shapes {self.cuda.profiles[0]}",
                expected="--batch or --shapes",
            )

    def _check_weights_alone(self) -> None:
        """What weights in 4 bits go with: a GPU's halves, or ONNX Runtime on a CPU; and floats."""
        if self.device.device == "cpu" and "onnxruntime" not in self.device.libraries:
            raise UsageError(
                "weights in 4 bits are run by ONNX Runtime on a CPU", hint="--library onnxruntime"
            )
        if "bf16" in self.precisions and self.device.device == "cuda":
            raise UsageError("weights in 4 bits are multiplied with fp16 on a GPU", hint="--fp16, not --bf16")
        if self.calibration.calib_random:
            raise UsageError(
                "weights in 4 bits are not rounded on random data",
                hint="calibration data, or --weight-rounding nearest, which needs none",
            )
        if self.code_precisions:
            raise UsageError(
                f"weights alone in 4 bits leave activations floats: not with {self.code_precisions[0]}",
                hint=f"--weights int4 without --{self.code_precisions[0]}",
            )

    @property
    def code_precisions(self) -> tuple[str, ...]:
        """Those of `precisions` that need ranges."""
        return tuple(name for name in CODE_PRECISIONS if name in self.precisions)


def to_dict(config: Any) -> dict[str, Any]:
    """A config as JSON-ready data, with its version; functions by their names."""
    return {"version": CONFIG_VERSION, **_fields(config)}


def _fields(config: Any) -> dict[str, Any]:
    return {field.name: _plain(getattr(config, field.name)) for field in dataclasses.fields(config)}


def _plain(value: Any) -> Any:
    if dataclasses.is_dataclass(value):
        return _fields(value)
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, (tuple, frozenset)):
        plain = [_plain(item) for item in value]
        return sorted(plain) if isinstance(value, frozenset) else plain
    return name_of(value) if callable(value) else value
