# SPDX-License-Identifier: Apache-2.0
"""The option sections at the head of a log, with the labels and in the order of trtexec 10.16."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial

from quantrt.dtypes import CODE_PRECISIONS
from quantrt.trtexec.flags.parse import Given
from quantrt.trtexec.flags.settings import BuildSettings, Settings
from quantrt.trtexec.flags.shapes import GivenProfile, shape_text
from quantrt.trtexec.flags.values import POOLS, IoFormat, Shape

__all__ = ["option_lines"]

MIB = 2**20


def option_lines(settings: Settings) -> Iterator[str]:
    """Every line of the sections, headers included."""
    build = settings.build
    yield "=== Model Options ==="
    yield f"Format: {'ONNX' if build.onnx else '*'}"
    yield f"Model: {build.onnx or ''}"
    yield "Output:"
    if build.load is None:
        yield from _build_lines(settings.given, build)
    yield from _system_lines(settings)
    yield ""
    yield from _inference_lines(settings)
    yield from _reporting_lines(settings)
    yield ""


def _build_lines(given: Given, build: BuildSettings) -> Iterator[str]:
    """What is refused here is off; what there is nothing to do for is shown as it was given."""
    on = partial(_switch, given)
    rows = {
        "Memory Pools": _pools_text(build.pools_bytes),
        "avgTiming": given.text("--avgTiming") or "8",
        "Precision": _precision_text(build),
        "LayerPrecisions": ",".join(f"{layer}:{kind}" for layer, kind in build.layer_precisions),
        "Layer Device Types": given.text("--layerDeviceTypes") or "",
        "Decomposable Attentions": given.text("--decomposableAttentions") or "",
        "Calibration": _calibration_text(build),
        "Refit": on("--refit"),
        "Strip weights": on("--stripWeights"),
        "Version Compatible": on("--versionCompatible"),
        "ONNX Plugin InstanceNorm": on("--pluginInstanceNorm"),
        "ONNX kENABLE_UINT8_AND_ASYMMETRIC_QUANTIZATION_DLA flag": on("--uint8AsymmetricQuantizationDLA"),
        "ONNX kREPORT_CAPABILITY_DLA flag": on("--reportCapabilityDLA"),
        "ONNX kADJUST_FOR_DLA flag": on("--adjustForDLA"),
        "ONNX kENABLE_PLUGIN_OVERRIDE flag": on("--enablePluginOverride"),
        "TensorRT runtime": "full",
        "Lean DLL Path": "",
        "Tempfile Controls": given.text("--tempfileControls") or "{ in_memory: allow, temporary: allow }",
        "Exclude Lean Runtime": on("--excludeLeanRuntime"),
        "Sparsity": "Enabled" if given.text("--sparsity") == "enable" else "Disabled",
        "Safe mode": on("--safe"),
        "Build DLA standalone loadable": on("--buildDLAStandalone"),
        "Allow GPU fallback for DLA": on("--allowGPUFallback"),
        "DirectIO mode": on("--directIO"),
        "Restricted mode": on("--restricted"),
        "Skip inference": on("--skipInference"),
        "Save engine": str(build.save or ""),
        "Load engine": "",
        "Profiling verbosity": str(build.verbosity),
        "Tactic sources": _sources_text(build.sources),
        "timingCacheMode": _cache_mode(build),
        "timingCacheFile": str(build.timing_cache or ""),
        "Enable Compilation Cache": "Disabled" if given.has("--noCompilationCache") else "Enabled",
        "Enable Monitor Memory": on("--monitorMemory"),
        "CPU Only Mode": on("--cpuOnly"),
        "errorOnTimingCacheMiss": on("--errorOnTimingCacheMiss"),
        "Preview Features": given.text("--preview") or "Use default preview flags.",
        "MaxAuxStreams": given.text("--maxAuxStreams") or "-1",
        "BuilderOptimizationLevel": str(-1 if build.level is None else build.level),
        "MaxTactics": given.text("--maxTactics") or "-1",
        "Calibration Profile Index": given.text("--calibProfile") or "0",
        "Weight Streaming": on("--allowWeightStreaming"),
        "Runtime Platform": "Same As Build",
        "Debug Tensors": "",
        "Distributive Independence": on("--distributiveIndependence"),
        "Mark Unfused Tensors As Debug Tensors": on("--markUnfusedTensorsAsDebugTensors"),
    }
    yield "=== Build Options ==="
    yield from _rows(rows)
    yield from _format_lines("Input(s)", build.input_formats)
    yield from _format_lines("Output(s)", build.output_formats)
    yield from _profile_lines(build.profiles)
    yield "Input calibration shapes: model"


def _system_lines(settings: Settings) -> Iterator[str]:
    yield "=== System Options ==="
    yield f"Device: {settings.device}"
    yield "DLACore: "
    for label in ("Plugins", "setPluginsToSerialize", "dynamicPlugins"):
        yield f"{label}:"
    yield f"ignoreParsedPluginLibs: {int(settings.given.has('--ignoreParsedPluginLibs'))}"


def _inference_lines(settings: Settings) -> Iterator[str]:
    run, on = settings.run, partial(_switch, settings.given)
    yield "=== Inference Options ==="
    yield from _rows(
        {
            "Batch": "Explicit",
            **_shapes_rows("inference", _run_shapes(settings)),
            "Iterations": str(run.iterations),
            "Duration": f"{run.duration_s:g}s (+ {run.warm_up_ms:g}ms warm up)",
            "Sleep time": "0ms",
            "Idle time": f"{run.idle_ms:g}ms",
            "Inference Streams": str(run.streams),
            "ExposeDMA": on("--exposeDMA"),
            "Data transfers": _enabled(run.copies),
            "Spin-wait": _enabled(run.spins),
            "Multithreading": _enabled(run.uses_threads),
            "CUDA Graph": on("--useCudaGraph"),
            "Separate profiling": on("--separateProfileRun"),
            "Time Deserialize": _enabled(run.times_opening),
            "Time Refit": "Disabled",
            "NVTX verbosity": str(settings.build.verbosity),
            "Persistent Cache Ratio": "0",
            "Optimization Profile Index": str(run.profile),
            "Weight Streaming Budget": "Disabled",
        }
    )
    yield "Inputs:"
    for pair in run.pairs:
        for name, path in pair.inputs.items():
            yield f"{name}<-{path}"
    yield "Debug Tensor Save Destinations:"
    yield "Dump All Debug Tensor in Formats: "


def _reporting_lines(settings: Settings) -> Iterator[str]:
    report = settings.report
    yield "=== Reporting Options ==="
    yield from _rows(
        {
            "Verbose": _enabled(report.is_verbose),
            "Averages": f"{report.avg_runs} inferences",
            "Percentiles": ",".join(f"{percent:g}" for percent in report.percentiles),
        }
    )
    yield "Dump refittable layers:Disabled"  # without a space, as trtexec prints it
    yield from _rows(
        {
            "Dump output": _enabled(report.dumps_output),
            "Profile": _enabled(report.dumps_profile),
            "Export timing to JSON file": str(report.times or ""),
            "Export output to JSON file": str(report.output or ""),
            "Export profile to JSON file": str(report.profile or ""),
        }
    )


def _rows(rows: Mapping[str, str]) -> Iterator[str]:
    return (f"{label}: {value}" for label, value in rows.items())


def _switch(given: Given, name: str) -> str:
    return _enabled(given.has(name))


def _enabled(value: bool) -> str:
    return "Enabled" if value else "Disabled"


def _pools_text(pools_bytes: Mapping[str, float]) -> str:
    def size(pool: str) -> str:
        found = pools_bytes.get(pool)
        return "default" if found is None else f"{found / MIB:g} MiB"

    return ", ".join(f"{pool}: {size(pool)}" for pool in POOLS)


def _precision_text(build: BuildSettings) -> str:
    names = ("fp16", "bf16", *CODE_PRECISIONS)
    allowed = [name for name in names if build.is_best or name in build.precisions]
    return "+".join(["FP32", *(name.upper() for name in allowed)])


def _calibration_text(build: BuildSettings) -> str:
    found = build.calibration
    path = found.cache or found.data
    if path is not None:
        return str(path)
    return "random data" if found.is_random else ""


def _sources_text(sources: Sequence[tuple[str, bool]]) -> str:
    if not sources:
        return "Using default tactic sources"
    return ", ".join(f"{name} [{'ON' if is_on else 'OFF'}]" for name, is_on in sources)


def _cache_mode(build: BuildSettings) -> str:
    if build.keeps_no_cache:
        return "disable"
    return "local" if build.timing_cache is None else "global"


def _format_lines(label: str, formats: Sequence[IoFormat]) -> Iterator[str]:
    if not formats:
        yield f"{label}s format: fp32:CHW"
    for found in formats:
        dtype = "" if found.dtype is None else f"{found.dtype}:"
        yield f"{label}: {dtype}{'+'.join(found.formats)}"


def _profile_lines(profiles: Sequence[GivenProfile]) -> Iterator[str]:
    if not profiles:
        yield "Input build shapes: model"
    for number, profile in enumerate(profiles):
        for name, best in profile.best.items():
            shapes = "+".join(shape_text(s) for s in (profile.least[name], best, profile.most[name]))
            yield f"Input build shape (profile {number}): {name}={shapes}"


def _run_shapes(settings: Settings) -> dict[str, Shape]:
    """Those that inputs will have: of the profile where no others are given."""
    profiles = settings.build.profiles[settings.run.profile :]
    return {**(profiles[0].best if profiles else {}), **settings.run.shapes}


def _shapes_rows(what: str, shapes: Mapping[str, Shape]) -> dict[str, str]:
    if not shapes:
        return {f"Input {what} shapes": "model"}
    return {f"Input {what} shape": ", ".join(f"{name}={shape_text(shape)}" for name, shape in shapes.items())}
