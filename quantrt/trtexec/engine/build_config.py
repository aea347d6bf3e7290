# SPDX-License-Identifier: Apache-2.0
"""What flags about a build come to for QuantRT's builder on one device, and what they do not do there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from quantrt.config import (
    AssignConfig,
    BenchConfig,
    BindingConfig,
    BuildConfig,
    CalibrationConfig,
    CudaConfig,
    DeviceConfig,
    QuantizeConfig,
)
from quantrt.device import has_bf16
from quantrt.dtypes import CODE_PRECISIONS
from quantrt.errors import UsageError, close_match
from quantrt.gpu import TARGETS
from quantrt.ir.profile import read_profiles
from quantrt.ir.tensor_spec import TensorSpec
from quantrt.trtexec.engine.device import Device
from quantrt.trtexec.engine.layer_rules import layer_rules, output_rules
from quantrt.trtexec.flags.settings import BuildSettings
from quantrt.trtexec.flags.shapes import profile_text

__all__ = ["Mapped", "allowed_precisions", "map_build"]

MIB = 2**20

SOURCES = {
    "CUBLAS": "cublaslt",
    "CUBLAS_LT": "cublaslt",
    "CUBLASLT": "cublaslt",
    "CUDNN": "cudnn",
    "TRITON": "triton",
    "TORCH": "torch",
}
_LACKING = {
    "fp16": "this CPU has no kernels for it",
    "bf16": "this CPU has no instructions for it",
    "fp8": "no CPU has kernels for it",
}

_BENCHES = (
    BenchConfig(warmup_s=0.05, duration_s=0.2, max_duration_s=0.5),
    BenchConfig(warmup_s=0.1, duration_s=0.5, max_duration_s=2.0),
    BenchConfig(warmup_s=0.2, duration_s=1.0, max_duration_s=5.0),
    BenchConfig(),
    BenchConfig(duration_s=6.0),
    BenchConfig(duration_s=10.0),
)
"""How long whole candidates are timed on a CPU, by --builderOptimizationLevel."""

NO_SOURCES = ("EDGE_MASK_CONVOLUTIONS", "JIT_CONVOLUTIONS")


@dataclass(frozen=True)
class Mapped:
    """What the builder is told.

    Attributes:
        notes: what flags do not do here, one sentence each.
    """

    config: BuildConfig
    notes: tuple[str, ...] = ()


@dataclass
class _Mapping:
    """One mapping in progress."""

    settings: BuildSettings
    device: Device
    isa: Sequence[str]
    notes: list[str] = field(default_factory=list)


def map_build(
    settings: BuildSettings,
    device: Device,
    facts: Mapping[str, Any],
    specs: Sequence[TensorSpec],
    *,
    has_own_scales: bool,
    bindings: BindingConfig | None = None,
) -> Mapped:
    """The builder's options.

    Args:
        facts: of this machine, as `quantrt.device.describe_device` gives them.
        specs: the engine's inputs, as far as they are known before it is built.
        bindings: of inputs and outputs that are not as the model has them.
        has_own_scales: whether the model has Q/DQ nodes: then no ranges are needed.

    Raises:
        UsageError: int8 or fp8 without ranges, ranges without either, a layer that cannot have its
            precision, or shapes that do not suit the model.
    """
    mapping = _Mapping(settings, device, facts.get("isa", ()))
    precisions = allowed_precisions(settings, device, mapping.isa, mapping.notes)
    _check_ranges(settings, precisions, has_own_scales=has_own_scales)
    rules = layer_rules(settings, precisions, is_gpu=device.is_gpu)
    mapping.notes += rules.notes
    constraints = output_rules(settings, mapping.notes)
    config = BuildConfig(
        precisions=rules.precisions | {"fp32"},
        calibration=CalibrationConfig(calib_random=settings.calibration.is_random),
        quantize=QuantizeConfig(exclude=rules.exclude),
        device=DeviceConfig(device=device.name),
        assign=AssignConfig(bf16_beside_int8=False),  # what is allowed was decided above
        bindings=bindings or BindingConfig(),
        constraints=constraints,
        cuda=_cuda(mapping, specs),
        bench=BenchConfig() if device.is_gpu or settings.level is None else _BENCHES[settings.level],
    )
    return Mapped(config, tuple(mapping.notes))


def allowed_precisions(
    settings: BuildSettings, device: Device, isa: Sequence[str], notes: list[str]
) -> frozenset[str]:
    """Precisions beside fp32 that the builder may choose: what flags allow and the device has.

    With int8 or fp8 comes the best float precision of the device for what stays float: on a GPU the one that
    is asked for, or else fp16.
    """
    if settings.is_strongly_typed:
        if settings.precisions:
            names = ", ".join(f"--{name}" for name in sorted(settings.precisions))
            notes.append(f"{names}: nothing is allowed by it, --stronglyTyped keeps the model's own types")
        return frozenset()
    asked = settings.precisions | ({"fp16", "bf16", *CODE_PRECISIONS} if settings.is_best else set())
    if device.is_gpu:
        with_codes = {"fp16"} if asked & {*CODE_PRECISIONS} and not asked & {"fp16", "bf16"} else set()
        return frozenset(asked | with_codes)
    floats = {"bf16"} if has_bf16(isa) else set()
    lacking = sorted(settings.precisions & _LACKING.keys() - floats)
    notes += [f"--{name}: {_LACKING[name]}, so it is not used" for name in lacking]
    allowed = asked & (floats | {"int8"})
    return frozenset(allowed | floats if "int8" in allowed else allowed)


def _check_ranges(settings: BuildSettings, precisions: frozenset[str], *, has_own_scales: bool) -> None:
    sources = settings.calibration.sources
    codes = [name for name in CODE_PRECISIONS if name in precisions]
    if codes and not sources and not has_own_scales:
        flag = f"--{codes[0]}" if codes[0] in settings.precisions else "--best"
        raise UsageError(
            f"{flag} needs the ranges of activations, and there are none",
            expected="--calib=CACHE, --calib-data=DATA or --calib-random",
            hint="--calib-random to measure speed only",
        )
    if sources and not codes:
        raise UsageError(
            f"{sources[0]} is used by int8 and fp8 only, and neither is allowed", hint=f"--int8 {sources[0]}"
        )


def _cuda(mapping: _Mapping, specs: Sequence[TensorSpec]) -> CudaConfig:
    settings = mapping.settings
    texts = _profile_texts(settings, specs)
    if not mapping.device.is_gpu:
        _note_cpu(mapping)
        return CudaConfig(profiles=texts)
    options: dict[str, Any] = {"profiles": texts, "exclude_tactic_sources": _excluded_sources(mapping)}
    if settings.level is not None:
        options["builder_optimization_level"] = settings.level
    if settings.timing_cache is not None and not settings.keeps_no_cache:
        options["timing_cache"] = str(settings.timing_cache)
    if "workspace" in settings.pools_bytes:
        options["workspace_mb"] = int(settings.pools_bytes["workspace"] / MIB)
    if settings.compatibility == "ampere+":
        options["targets"] = TARGETS
    return CudaConfig(**options)


def _profile_texts(settings: BuildSettings, specs: Sequence[TensorSpec]) -> tuple[str, ...]:
    """The profiles as the builder reads them; a scalar has no sizes to give."""
    found = []
    for profile in settings.profiles:
        ranges = {name: shapes for name, shapes in profile.for_inputs(specs).items() if shapes.best}
        if ranges:
            found.append(profile_text(ranges))
    try:
        read_profiles(found, specs)
    except UsageError as error:
        hint = "--minShapes, --optShapes and --maxShapes of all inputs with free sizes"
        raise UsageError(error.message, got=error.got, expected=error.expected, hint=hint) from error
    return tuple(found)


def _note_cpu(mapping: _Mapping) -> None:
    """Say which flags of a GPU's do nothing."""
    settings = mapping.settings
    _excluded_sources(mapping)  # an unknown one is an error on a CPU too
    given = {
        "--timingCacheFile": settings.timing_cache is not None,
        "--errorOnTimingCacheMiss": settings.is_miss_an_error,
        "--memPoolSize": bool(settings.pools_bytes),
        "--tacticSources": bool(settings.sources),
        "--hardwareCompatibilityLevel": settings.compatibility == "ampere+",
    }
    names = [name for name, is_given in given.items() if is_given]
    if names:
        mapping.notes.append(
            f"{', '.join(names)}: nothing is done on a CPU, whose libraries choose their kernels"
        )
    if any(profile.least != profile.most for profile in settings.profiles):
        mapping.notes.append("profiles: on a CPU an engine takes any shape, and is timed at the opt shapes")


def _excluded_sources(mapping: _Mapping) -> tuple[str, ...]:
    excluded = []
    for name, is_on in mapping.settings.sources:
        upper = name.upper()
        if upper in NO_SOURCES:
            mapping.notes.append(f"--tacticSources: there is no source {upper} here")
        elif upper not in SOURCES:
            known = (*SOURCES, *NO_SOURCES)
            near = close_match(upper, known)
            raise UsageError(
                f"unknown tactic source '{name}'",
                expected="one of " + ", ".join(known),
                hint=f"--tacticSources={'+' if is_on else '-'}{near}" if near else None,
            )
        elif not is_on:
            excluded.append(SOURCES[upper])
    return tuple(dict.fromkeys(excluded))
