# SPDX-License-Identifier: Apache-2.0
"""One run of trtexec: options, device, engine, layers, inference, summary, profile, comparison."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

import quantrt
from quantrt.build import OnEvent
from quantrt.errors import UsageError
from quantrt.ir.profile import Profile
from quantrt.plan.serialize import peek_plan
from quantrt.report.built.chosen_shapes import timed_shapes
from quantrt.report.engine_layers.of_engine import EngineLayer, engine_layers
from quantrt.runtime.engine import Engine, load
from quantrt.runtime.layer_times import LayerTimes, time_layers
from quantrt.trtexec.engine.device import Device, choose_device, device_lines
from quantrt.trtexec.engine.engine import OpenedEngine, build_engine, load_engine, plan_version_line
from quantrt.trtexec.flags.dims import in_model_order, model_shape
from quantrt.trtexec.flags.flag import Effect
from quantrt.trtexec.flags.ignored import flags_of_builds
from quantrt.trtexec.flags.settings import CPU, Settings
from quantrt.trtexec.flags.shapes import by_input, shape_text
from quantrt.trtexec.flags.values import Shape
from quantrt.trtexec.inference.accuracy import Loss, loss_of
from quantrt.trtexec.inference.inference import open_streams, time_queries
from quantrt.trtexec.inference.inputs import check_profiles, input_shapes, make_inputs, read_raw
from quantrt.trtexec.inference.outputs import output_lines, outputs_json, times_json, write_json, write_raw
from quantrt.trtexec.reports.layers_json import layer_names, layers_json, layers_text
from quantrt.trtexec.reports.log import Log
from quantrt.trtexec.reports.options_text import option_lines
from quantrt.trtexec.reports.profile_text import profile_json, profile_lines
from quantrt.trtexec.reports.summary_text import PARTS, show_summary, show_trace, stats_line
from quantrt.trtexec.reports.text import AS_TRTEXEC
from quantrt.trtexec.reports.trace import Trace, stats_of

__all__ = ["Outcome", "run"]

MAX_PROFILE_RUNS = 200
"""Runs of the profile, unless --iterations asks for more: watched runs are slow, and medians settle soon."""

PROFILE_WARM_UP_RUNS = 3
OPENINGS = 10
"""How often --timeDeserialize opens the engine after the first time."""


@dataclass(frozen=True)
class Outcome:
    """What came of a run.

    Attributes:
        data: the same facts as the log, JSON-ready.
        passed: False when an output is too far from its reference.
    """

    data: dict[str, Any] = field(default_factory=dict)
    passed: bool = True


def run(settings: Settings, out: Log, on_event: OnEvent) -> Outcome:
    """Do what the flags ask for, in trtexec's order.

    Raises:
        QuantRtError: of any family; nothing is left half written.
    """
    out.info(f"QuantRT {quantrt.__version__} in the place of trtexec {AS_TRTEXEC}: this is not TensorRT.")
    for line in option_lines(settings):
        out.info(line)
    for flag in settings.given.of_effect(Effect.NOTHING):
        out.info(f"{flag.name}: nothing to do, {flag.text}")
    load_path = settings.build.load
    if settings.tells_version_only and load_path is not None:
        out.info(plan_version_line(load_path))
        return Outcome({"format_version": peek_plan(load_path).format_version})
    device = _device(settings, out)
    for line in device_lines(device):
        out.info(line)
    if settings.run.times_opening and load_path is not None:
        return _time_opening(load_path, out)
    opened = (
        build_engine(settings.build, device, out, on_event)
        if load_path is None
        else load_engine(load_path, out)
    )
    with opened.engine:
        if load_path is not None:
            for flag in flags_of_builds(settings.given, has_profiles=bool(opened.profiles)):
                out.warn(f"{flag.name} is ignored: the engine of --loadEngine is built already")
        return _Run(settings, device, opened, out).all()


def _device(settings: Settings, out: Log) -> Device:
    """That of the engine file; for a model the one asked for, the CPU where there is no GPU."""
    if settings.build.load is not None:
        is_gpu = peek_plan(settings.build.load).plan.model.library == "cuda"
        if is_gpu and settings.device == CPU:
            out.warn("--device=cpu is ignored: the engine of --loadEngine is for a GPU")
        return Device("cuda" if is_gpu else "cpu")
    device = choose_device(settings.device)
    if device.why is not None:
        out.info(f"Device: the CPU, for {device.why}")
    return device


def _time_opening(path: Path, out: Log) -> Outcome:
    times_ms = []
    for _ in range(1 + OPENINGS):
        start_s = time.perf_counter()
        load(path).close()
        times_ms.append((time.perf_counter() - start_s) * 1e3)
    found = stats_of(times_ms[1:], ())
    out.info(f"Engine deserialized in {times_ms[0] / 1e3:.6g} sec.")
    out.info(f"Deserialized {OPENINGS} times more: {stats_line(found, ())}")
    return Outcome({"first_ms": times_ms[0], "median_ms": found.median_ms})


class _Run:
    """What is done with an engine."""

    def __init__(self, settings: Settings, device: Device, opened: OpenedEngine, out: Log) -> None:
        self.settings = settings
        self.device = device
        self.engine: Engine = opened.engine
        self.out = out
        self.profiles = self._profiles(opened)
        self.shapes = self._shapes()
        self._layers: tuple[EngineLayer, ...] | None = None
        self.data: dict[str, Any] = {"device": device.name, "engine": self._engine_facts()}

    def all(self) -> Outcome:
        """Everything, in order."""
        report = self.settings.report
        if report.dumps_shape_profiles:
            self._show_profiles()
        if report.dumps_layers or report.layers is not None:
            self._tell_layers()
        if self.settings.build.skips_inference:
            self.out.info("Skipped inference phase since --skipInference is added.")
            return Outcome(self.data)
        inputs = make_inputs(self.engine.inputs, self.shapes, self.settings.run.pairs[0].inputs, self.out)
        self._infer(inputs)
        self._tell_outputs(inputs)
        if report.needs_profile:
            self._tell_times(inputs)
        losses = self._compare()
        self.data["losses"] = [
            {"pair": loss.pair, "output": loss.output, "loss": loss.value, "passed": loss.passed}
            for loss in losses
        ]
        return Outcome(self.data, all(loss.passed for loss in losses))

    def _profiles(self, opened: OpenedEngine) -> tuple[Profile, ...]:
        """Those that the engine was built for; of a loaded one without any, those of the command line."""
        if opened.profiles or self.settings.build.load is None:
            return opened.profiles
        given = [profile.for_inputs(opened.engine.inputs) for profile in self.settings.build.profiles]
        return tuple(Profile(ranges) for ranges in given)

    def _shapes(self) -> dict[str, Shape]:
        number_of = self.settings.run.profile
        if number_of >= max(1, len(self.profiles)):
            raise UsageError(
                f"there is no profile {number_of}",
                got=f"{len(self.profiles)} profiles",
                hint="--useProfile=0",
            )
        best = self.profiles[number_of].best if self.profiles else {}
        best = {**best, **self._best_given(number_of)}
        timed = timed_shapes(self.engine.plan)
        shapes = input_shapes(self.engine.inputs, self.settings.run.shapes, best, self.out, timed)
        check_profiles(self.profiles, shapes)
        return shapes

    def _best_given(self, number: int) -> dict[str, Shape]:
        """The opt shapes of the command line for an engine that was built before, as in trtexec."""
        given = self.settings.build.profiles
        if self.settings.build.load is None or number >= len(given):
            return {}
        return by_input(given[number].best, self.engine.inputs)

    def _engine_facts(self) -> dict[str, Any]:
        plan = self.engine.plan
        if self.settings.build.load is None:  # loading says it by itself
            for note in self.engine.notes:
                self.out.warn(note)
        self.out.info(f"Engine: {plan.precision} on {plan.model.library}")
        return {
            "library": plan.model.library,
            "precision": plan.precision,
            "model_bytes": plan.model.size_bytes,
            "notes": list(self.engine.notes),
        }

    def _show_profiles(self) -> None:
        specs = {spec.name: spec for spec in self.engine.inputs}
        for index, profile in enumerate(self.profiles):
            for name, found in profile.ranges.items():
                shapes = (("min", found.least), ("opt", found.best), ("max", found.most))
                text = ", ".join(
                    f"{word}={shape_text(model_shape(specs[name], shape))}" for word, shape in shapes
                )
                self.out.info(f"Model input {name} (profile {index}): {text}")
        if not self.profiles:
            self.out.info(
                "The engine has no optimization profiles: it takes every shape that the model takes."
            )

    @property
    def layers(self) -> tuple[EngineLayer, ...]:
        """Of the engine, at the shapes of the inputs."""
        if self._layers is None:
            self._layers = engine_layers(self.engine, shapes=self.shapes)
        return self._layers

    def _tell_layers(self) -> None:
        report, verbosity = self.settings.report, self.settings.build.verbosity
        document = layers_json(
            self.engine.plan, () if verbosity == 1 else self.layers, is_detailed=verbosity == 2
        )
        if verbosity != 2:
            self.out.warn("Layers are told by name only: --profilingVerbosity=detailed tells more.")
        if report.dumps_layers:
            for line in layers_text(document):
                self.out.info(line)
        if report.layers is not None:
            write_json(report.layers, document)

    def _infer(self, inputs: Mapping[str, np.ndarray]) -> None:
        run_settings, report = self.settings.run, self.settings.report
        with open_streams(self.engine, inputs, run_settings) as streams:
            self.out.info("Starting inference")
            in_threads = run_settings.uses_threads or not self.device.is_gpu
            queries = time_queries(streams, run_settings, in_threads=in_threads)
        trace = Trace.of(queries, run_settings.warm_up_ms)
        if not trace.timed:
            raise UsageError(
                "no inference began after the warm-up", got=f"{len(queries)} inferences", hint="--duration=3"
            )
        show_trace(self.out, trace, avg_runs=report.avg_runs, warm_up_ms=run_settings.warm_up_ms)
        show_summary(
            self.out, trace, report.percentiles, is_gpu=self.device.is_gpu, streams=run_settings.streams
        )
        if report.times is not None:
            write_json(report.times, times_json(trace.timed))
        self.data["summary"] = _summary(trace, report.percentiles)

    def _tell_outputs(self, inputs: Mapping[str, np.ndarray]) -> None:
        report = self.settings.report
        if not (report.dumps_output or report.dumps_raw or report.output):
            return
        engine = self.engine
        outputs = engine.run(inputs)
        ordered = in_model_order(engine.outputs, outputs)
        if report.dumps_output:
            for line in output_lines(ordered):
                self.out.info(line)
        if report.dumps_raw:
            given = write_raw(inputs, engine.inputs, "input", Path())
            for path in (*given, *write_raw(outputs, engine.outputs, "output", Path())):
                self.out.info(f"Wrote {path}")
        if report.output is not None:
            write_json(report.output, outputs_json(ordered))

    def _tell_times(self, inputs: Mapping[str, np.ndarray]) -> None:
        report = self.settings.report
        runs = max(self.settings.run.iterations, 1, min(self.data["summary"]["queries"], MAX_PROFILE_RUNS))
        found = time_layers(self.engine, inputs, runs=runs, warmup_runs=PROFILE_WARM_UP_RUNS)
        times = self._as_layers(found)
        self.out.info(f"Layers were timed in a run of their own, by {found.method}: watching slows them.")
        if report.dumps_profile:
            self.out.info("")
            for line in profile_lines(times):
                self.out.info(line)
            self.out.info("")
        if report.profile is not None:
            write_json(report.profile, profile_json(times))

    def _as_layers(self, times: LayerTimes) -> LayerTimes:
        """A row for each timed layer, named and ordered as in --exportLayerInfo: readers pair them by place.

        Layers that the library did not time have no row, never one of zeros. Readers then pair by name.
        """
        names, rows = layer_names(self.layers), dict(zip(times.names, times.times_ms, strict=True))
        for name in names:
            if name not in rows:
                self.out.warn(f"Layer {names[name]} was not timed: it has no row in the profile")
        order = [name for name in names if name in rows] + [name for name in rows if name not in names]
        return replace(
            times,
            names=tuple(names.get(name, name) for name in order),
            times_ms=tuple(rows[name] for name in order),
        )

    def _compare(self) -> list[Loss]:
        """The loss of every output that there is a reference for."""
        settings = self.settings.run
        losses: list[Loss] = []
        for pair_number, pair in enumerate(settings.pairs):
            if not pair.outputs:
                continue
            outputs = self.engine.run(make_inputs(self.engine.inputs, self.shapes, pair.inputs, self.out))
            for name, path in pair.outputs.items():
                if name not in outputs:
                    raise UsageError(f"the model has no output '{name}'", expected=", ".join(outputs))
                got = outputs[name]
                ref = read_raw(path, got.dtype.name, got.shape, f"reference of output '{name}'")
                value = loss_of(ref, got, settings)
                losses.append(Loss(pair_number, name, value, settings.threshold or 0.0))
        if losses:
            self.out.info("=== Accuracy validation ===")
            self.out.info(f"Algorithm: {settings.algorithm}")
        for loss in losses:
            (self.out.info if loss.passed else self.out.error)(str(loss))
        return losses


def _summary(trace: Trace, percentiles: tuple[float, ...]) -> dict[str, Any]:
    """The figures of the performance summary."""
    parts = {}
    for _, part in PARTS:
        found = stats_of([getattr(query, part) for query in trace.timed], percentiles)
        parts[part] = {
            "min": found.min_ms,
            "max": found.max_ms,
            "mean": found.mean_ms,
            "median": found.median_ms,
            **{
                f"p{percent:g}": value
                for percent, value in zip(percentiles, found.percentiles_ms, strict=True)
            },
        }
    return {
        "queries": len(trace.timed),
        "throughput_qps": trace.throughput_qps,
        "wall_s": trace.wall_ms / 1e3,
        **parts,
    }
