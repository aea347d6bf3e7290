# SPDX-License-Identifier: Apache-2.0
"""What one command line asks for, checked as far as it can be without the model and the device."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from quantrt.dtypes import CODE_PRECISIONS
from quantrt.errors import UsageError
from quantrt.ir.atomic import check_apart
from quantrt.trtexec.flags.parse import Given
from quantrt.trtexec.flags.run_settings import ReportSettings, RunSettings, path_of, read_report, read_run
from quantrt.trtexec.flags.shapes import GivenProfile, read_profiles_given
from quantrt.trtexec.flags.values import (
    IoFormat,
    read_formats,
    read_layers,
    read_number,
    read_pools,
    read_shapes,
    read_signed,
    read_whole,
)

__all__ = ["CPU", "BuildSettings", "Calibration", "Settings", "read_settings"]

CPU = "cpu"
"""The value of --device that means the CPU."""

MIB = 2**20
LEVELS = 5
HEURISTIC_LEVEL = 2
"""What --heuristic stands for: trtexec 8.6 says that levels up to 2 are heuristic."""

IN_DETAIL = {"detailed": 2, "verbose": 2, "none": 1, "layer_names_only": 0, "default": 0}
"""nvinfer1::ProfilingVerbosity of each word, as the log prints it."""


@dataclass(frozen=True, kw_only=True)
class Calibration:
    """Where ranges come from."""

    cache: Path | None = None
    data: Path | None = None
    is_random: bool = False
    validation: Path | None = None
    preprocess: str | None = None

    @property
    def sources(self) -> tuple[str, ...]:
        """The flags that give ranges."""
        given = (("--calib", self.cache), ("--calib-data", self.data), ("--calib-random", self.is_random))
        return tuple(name for name, value in given if value)


@dataclass(frozen=True, kw_only=True)
class BuildSettings:
    """How the engine is built.

    Attributes:
        precisions: those that flags allow, of "fp16", "bf16", "int8" and "fp8".
        is_best: every precision of the device is allowed.
        is_strongly_typed: none but the model's own.
        layer_precisions, layer_output_types: (layer or pattern, type) in the order given.
        constraint: "none", "obey" or "prefer".
        pools_bytes: bounds by memory pool.
        sources: (name, on or off) of tactic sources.
        level: builder optimization level; None for the builder's default.
        compatibility: of --hardwareCompatibilityLevel.
        verbosity: 0 layer names, 1 none, 2 all details.
    """

    onnx: Path | None
    save: Path | None = None
    load: Path | None = None
    precisions: frozenset[str] = frozenset()
    is_best: bool = False
    is_strongly_typed: bool = False
    calibration: Calibration = Calibration()
    profiles: tuple[GivenProfile, ...] = ()
    layer_precisions: tuple[tuple[str, str], ...] = ()
    layer_output_types: tuple[tuple[str, str], ...] = ()
    constraint: str = "none"
    input_formats: tuple[IoFormat, ...] = ()
    output_formats: tuple[IoFormat, ...] = ()
    pools_bytes: Mapping[str, float] = field(default_factory=dict)
    sources: tuple[tuple[str, bool], ...] = ()
    timing_cache: Path | None = None
    keeps_no_cache: bool = False
    is_miss_an_error: bool = False
    level: int | None = None
    compatibility: str = "none"
    verbosity: int = 0
    skips_inference: bool = False


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Everything.

    Attributes:
        device: "cpu", or the number of a GPU.
        tells_version_only: of the engine file, and nothing else.
    """

    given: Given
    build: BuildSettings
    run: RunSettings
    report: ReportSettings
    device: str = "0"
    tells_version_only: bool = False


def read_settings(given: Given) -> Settings:
    """What the flags ask for.

    Raises:
        UsageError: a value cannot be read, or flags contradict one another.
    """
    build, run = _read_build(given), read_run(given)
    if (given.has("--timeDeserialize") or given.has("--getPlanVersionOnly")) and build.load is None:
        raise UsageError("there is no engine file to open", hint="--loadEngine=model.qrt")
    if run.has_references and build.skips_inference:
        raise UsageError("outputs cannot be compared without inference", hint="without --skipInference")
    report = read_report(given)
    _check_files(build, run, report)
    return Settings(
        given=given,
        build=build,
        run=run,
        report=report,
        device=_device(given),
        tells_version_only=given.has("--getPlanVersionOnly"),
    )


def _check_files(build: BuildSettings, run: RunSettings, report: ReportSettings) -> None:
    """Nothing that is written takes the place of what is read, or of something else that is written."""
    written = (
        ("--saveEngine=", build.save),
        ("--exportTimes=", report.times),
        ("--exportOutput=", report.output),
        ("--exportProfile=", report.profile),
        ("--exportLayerInfo=", report.layers),
    )
    files = [path for pair in run.pairs for path in (*pair.inputs.values(), *pair.outputs.values())]
    check_apart(written, (build.onnx, build.load, build.calibration.cache, build.calibration.data, *files))


def _read_build(given: Given) -> BuildSettings:
    onnx, save, load = (path_of(given, name) for name in ("--onnx", "--saveEngine", "--loadEngine"))
    if onnx is None and load is None:
        raise UsageError("no model was given", hint="--onnx=model.onnx, or --loadEngine=model.qrt")
    if save is not None and load is not None:
        raise UsageError("an engine is either loaded or saved", hint="--loadEngine without --saveEngine")
    sparsity, runtime = given.text("--sparsity"), given.text("--useRuntime")
    if sparsity == "force":
        raise UsageError("--sparsity=force cannot be done: no kernel uses 2:4 sparsity")
    if runtime in ("lean", "dispatch") or given.text("--runtimePlatform") == "WindowsAMD64":
        name = "--useRuntime" if runtime in ("lean", "dispatch") else "--runtimePlatform"
        raise UsageError(f"{name}={given.text(name)} cannot be done: there is one runtime, for this platform")
    _check_layer_devices(given)
    return BuildSettings(
        onnx=onnx,
        save=save,
        load=load,
        precisions=frozenset(name for name in ("fp16", "bf16", *CODE_PRECISIONS) if given.has(f"--{name}")),
        is_best=given.has("--best"),
        is_strongly_typed=_is_strongly_typed(given),
        calibration=_read_calibration(given),
        profiles=_profiles(given),
        layer_precisions=_layers(given, "--layerPrecisions"),
        layer_output_types=_layers(given, "--layerOutputTypes"),
        constraint=given.text("--precisionConstraints") or "none",
        input_formats=_formats(given, "--inputIOFormats"),
        output_formats=_formats(given, "--outputIOFormats"),
        pools_bytes=_pools(given),
        sources=read_signed("--tacticSources", given.text("--tacticSources") or ""),
        timing_cache=path_of(given, "--timingCacheFile"),
        keeps_no_cache=given.has("--noBuilderCache"),
        is_miss_an_error=given.has("--errorOnTimingCacheMiss"),
        level=_level(given),
        compatibility=given.text("--hardwareCompatibilityLevel") or "none",
        verbosity=IN_DETAIL[given.text("--profilingVerbosity") or "default"],
        skips_inference=given.has("--skipInference"),
    )


def _profiles(given: Given) -> tuple[GivenProfile, ...]:
    """Those of the command line; without any, --shapes are all that the engine has to take, as in trtexec."""
    text = given.text("--shapes")
    shapes = read_shapes("--shapes", text) if text else {}
    return read_profiles_given(given) or ((GivenProfile(shapes, shapes, shapes),) if shapes else ())


def _read_calibration(given: Given) -> Calibration:
    found = Calibration(
        cache=path_of(given, "--calib"),
        data=path_of(given, "--calib-data"),
        is_random=given.has("--calib-random"),
        validation=path_of(given, "--valid-data"),
        preprocess=given.text("--preprocess"),
    )
    if found.is_random and len(found.sources) > 1:
        raise UsageError(
            "random ranges cannot fill what others leave out", got=" and ".join(found.sources), expected="one"
        )
    for name, path in (("--calib", found.cache), ("--calib-data", found.data)):
        if path is not None and not path.exists():
            raise UsageError(
                f"there is no file '{path}' to take ranges from",
                expected="a TensorRT calibration cache" if name == "--calib" else "calibration data",
                hint="--calib-data=DATA to calibrate, or --calib-random to measure speed only",
            )
    return found


def _is_strongly_typed(given: Given) -> bool:
    """Whether --stronglyTyped holds; as in trtexec it goes with no flag that allows another precision."""
    if not given.has("--stronglyTyped"):
        return False
    for name in ("--best", "--layerPrecisions", "--layerOutputTypes", "--precisionConstraints"):
        if given.has(name):
            raise UsageError(f"{name} and --stronglyTyped contradict each other", hint=f"without {name}")
    return True


def _pools(given: Given) -> dict[str, float]:
    text = given.text("--memPoolSize")
    pools = read_pools("--memPoolSize", text) if text else {}
    if "tacticSharedMem" in pools:
        raise UsageError(
            "--memPoolSize=tacticSharedMem cannot be done: kernels use what their blocks can have",
            hint="workspace:SIZE, which bounds scratch memory",
        )
    old = given.text("--workspace")
    if old is not None:
        bound = read_number("--workspace", old) * MIB
        if pools.setdefault("workspace", bound) != bound:
            raise UsageError(
                "--workspace and --memPoolSize=workspace give two bounds", expected="one of them"
            )
    return pools


def _level(given: Given) -> int | None:
    text = given.text("--builderOptimizationLevel")
    if text is None:
        return HEURISTIC_LEVEL if given.has("--heuristic") else None
    level = read_whole("--builderOptimizationLevel", text)
    if given.has("--heuristic") and level != HEURISTIC_LEVEL:
        raise UsageError(
            f"--heuristic is --builderOptimizationLevel={HEURISTIC_LEVEL}, and another level is given",
            got=text,
            hint="without --heuristic",
        )
    if level > LEVELS:
        raise UsageError("cannot use this --builderOptimizationLevel", got=text, expected=f"0 to {LEVELS}")
    return level


def _check_layer_devices(given: Given) -> None:
    for layer, device in _layers(given, "--layerDeviceTypes"):
        if device.upper() != "GPU":
            raise UsageError(
                f"--layerDeviceTypes={layer}:{device} cannot be done", expected="GPU; there is no DLA"
            )


def _device(given: Given) -> str:
    text = given.text("--device") or "0"
    if text.lower() == CPU:
        return CPU
    if not text.isdecimal():
        raise UsageError(f"cannot read '{text}' of --device", expected="0, or cpu", hint="--device=0")
    if int(text) != 0:
        raise UsageError(
            f"--device={text} cannot be done: the first GPU that this process sees is used",
            hint=f"CUDA_VISIBLE_DEVICES={text} and --device=0, or --device=cpu",
        )
    return text


def _layers(given: Given, name: str) -> tuple[tuple[str, str], ...]:
    text = given.text(name)
    return read_layers(name, text) if text else ()


def _formats(given: Given, name: str) -> tuple[IoFormat, ...]:
    text = given.text(name)
    return read_formats(name, text) if text else ()
