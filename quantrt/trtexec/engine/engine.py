# SPDX-License-Identifier: Apache-2.0
"""The engine of a command line: built from the model, or opened from its file."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path

from quantrt.build import OnEvent, build
from quantrt.calibrate.dataset import Dataset, open_dataset
from quantrt.constrain.rule import Rule, check_meaning
from quantrt.device import describe_device
from quantrt.errors import DataError, UsageError
from quantrt.ir.atomic import check_writable
from quantrt.ir.profile import Profile, read_profiles
from quantrt.model.load import load_model
from quantrt.model.model import Model
from quantrt.plan.serialize import peek_plan
from quantrt.quantize.placement.obstacle import is_quantized
from quantrt.runtime.engine import Engine, load
from quantrt.runtime.profile_check import profiles_of
from quantrt.trtexec.engine.build_config import Mapped, map_build
from quantrt.trtexec.engine.cache_miss import check_no_miss, known_timings
from quantrt.trtexec.engine.device import Device
from quantrt.trtexec.engine.io_formats import bindings_of, laid_out
from quantrt.trtexec.flags.settings import BuildSettings
from quantrt.trtexec.inference.inputs import is_fixed
from quantrt.trtexec.reports.log import Log

__all__ = ["OpenedEngine", "build_engine", "load_engine", "plan_version_line"]

MIB = 2**20


@dataclass(frozen=True)
class OpenedEngine:
    """An engine with the profiles it was built for.

    Attributes:
        profiles: in the order of the command line, or of the engine file.
    """

    engine: Engine
    profiles: tuple[Profile, ...]


def build_engine(settings: BuildSettings, device: Device, out: Log, on_event: OnEvent) -> OpenedEngine:
    """Build, save where that is asked for, and say how long it took.

    Raises:
        UsageError, ModelError, DataError, DeviceError: as `quantrt.build.build`; also when a timing that was
            not in the timing cache had to be taken and that is to be an error.
    """
    if settings.onnx is None:
        raise UsageError("no model was given", hint="--onnx=model.onnx")
    if settings.save is not None:
        check_writable(settings.save)
    start_s = time.perf_counter()
    model = load_model(settings.onnx)
    out.info(f"Finished parsing network model. Parse time: {time.perf_counter() - start_s:.6g}")
    mapped = _map(settings, device, model)
    for note in mapped.notes:
        out.warn(note)
    out.info(f"Precisions allowed on this device: {', '.join(sorted(mapped.config.precisions))}")
    cache = None if settings.keeps_no_cache else settings.timing_cache
    known = known_timings(cache) if settings.is_miss_an_error and device.is_gpu else None
    start_s = time.perf_counter()
    engine = _build(settings, model, mapped, on_event)
    out.info(f"Engine built in {time.perf_counter() - start_s:.6g} sec.")
    try:
        if cache is not None and known is not None:
            check_no_miss(cache, known)
        size_mib = engine.plan.model.size_bytes / MIB
        if settings.save is not None:
            engine.save(settings.save)
            size_mib = settings.save.stat().st_size / MIB
        out.info(f"Created engine with size: {size_mib:.6g} MiB")
        for note in engine.report.get("notes", ()):
            out.info(f"Note: {note}")
    except BaseException:
        engine.close()
        raise
    return OpenedEngine(engine, read_profiles(mapped.config.cuda.profiles, engine.inputs))


def load_engine(path: Path, out: Log) -> OpenedEngine:
    """Open an engine file, and say how long it took.

    Raises:
        ModelError, DeviceError: as `quantrt.load`.
    """
    start_s = time.perf_counter()
    engine = load(path)
    out.info(f"Engine loaded in {time.perf_counter() - start_s:.6g} sec.")
    out.info(f"Loaded engine with size: {path.stat().st_size / MIB:.6g} MiB")
    return OpenedEngine(engine, profiles_of(engine.plan.model))


def plan_version_line(path: Path) -> str:
    """What --getPlanVersionOnly prints."""
    facts = peek_plan(path)
    return (
        f"Plan was created with QuantRT, engine format {facts.format_version}, for {facts.plan.model.library}"
    )


def _map(settings: BuildSettings, device: Device, model: Model) -> Mapped:
    if settings.constraint != "none":
        rules = [Rule(layer, (kind,)) for layer, kind in settings.layer_precisions]
        check_meaning("--layerPrecisions", rules, model)
    bindings = bindings_of(settings, model.inputs, model.outputs)
    return map_build(
        settings,
        device,
        describe_device(with_gpu=False),
        laid_out(model.inputs, bindings.input_layouts),
        has_own_scales=is_quantized(model.graph.graph),
        bindings=bindings,
    )


def _build(settings: BuildSettings, model: Model, mapped: Mapped, on_event: OnEvent) -> Engine:
    found = settings.calibration
    try:
        return build(
            model,
            config=mapped.config,
            calibration=_data(found.data, model, found.preprocess),
            validation=_data(found.validation, model, found.preprocess),
            calibration_cache=found.cache,
            on_event=on_event,
        )
    except DataError as error:
        free = [spec for spec in model.inputs if not is_fixed(spec)]
        if error.hint is None and free and not settings.profiles:
            error.hint = f"--shapes={free[0].name}:SIZExSIZE..., for nobody gave its free sizes ({free[0]})"
        raise


def _data(path: Path | None, model: Model, preprocess: str | None) -> Dataset | None:
    return None if path is None else open_dataset(path, model.inputs, preprocess=preprocess)
