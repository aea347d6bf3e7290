# SPDX-License-Identifier: Apache-2.0
"""Engines in a diffusion pipeline: record, export, build, replace, measure."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import numpy as np
import torch

from quantrt.build import build
from quantrt.config import BuildConfig
from quantrt.errors import UsageError
from quantrt.model.load import load_model
from quantrt.option_checks import check_positive
from quantrt.report.progress import Bars, progress_bars
from quantrt.runtime.engine import Engine
from quantrt.runtime.peak_memory import peak_memory
from quantrt.torch.diffusers.calls import batch_of
from quantrt.torch.diffusers.engine_module import EngineModule
from quantrt.torch.diffusers.export import export_module
from quantrt.torch.diffusers.latency import RunTime, time_run
from quantrt.torch.diffusers.parts import DENOISERS, find_parts, timed_parts
from quantrt.torch.diffusers.record import Recording, Samples, recording
from quantrt.torch.diffusers.result import PartReport, PipelineReport

__all__ = ["quantize_pipeline"]

Prompt = str | Mapping[str, Any]

CALIBRATION_SAMPLES = 128
VALIDATION_SAMPLES = 16

_TITLES = {torch.float32: "FP32", torch.float16: "FP16", torch.bfloat16: "BF16"}


def quantize_pipeline(
    pipe: Any,
    *,
    prompts: Sequence[Prompt],
    steps: int,
    level: str | float = "auto",
    precisions: Iterable[str] = ("int8",),
    device: str = "cpu",
    modules: Sequence[str] | None = None,
    call_options: Mapping[str, Any] | None = None,
    config: BuildConfig | None = None,
    folder: str | Path | None = None,
    calibration_samples: int = CALIBRATION_SAMPLES,
    seed: int = 0,
    keep_float: bool = False,
    quiet: bool = False,
) -> PipelineReport:
    """Put engines in the place of a pipeline's modules; `pipe(prompt)` then works as before.

    The pipeline is run for every prompt, and the calls of its modules are what the engines are calibrated on;
    of two prompts or more the last is kept to check them with. Each engine is the fastest candidate of
    `quantrt.build` inside its budget: float, where nothing else is surely faster.

    Args:
        pipe: a pipeline of diffusers, or what looks like one: called with a prompt and
            `num_inference_steps`, `generator` and `output_type="np"`, it gives `images` [N, H, W, 3] in 0..1.
        prompts: texts, or keyword arguments of a call, such as prompt_embeds.
        steps: denoising steps of each run; any other number can be used later.
        level: quantization level, as of `quantrt build`: 1, 2, 2.5, 3, 4 or "auto".
        precisions: what to try: "int8", on a GPU also "fp8" and "fp16".
        modules: any of "unet", "transformer", "text_encoder", "text_encoder_2", "text_encoder_3",
            "vae_decoder"; by default what denoises.
        call_options: keyword arguments of every run, such as height, width and guidance_scale.
        config: options of the builds; `level`, `precisions` and `device` replace its parts.
        folder: where models, samples and engines are kept; by default a new one for temporary files.
        calibration_samples: samples of a denoiser to keep, at most, spread over prompts and steps.
        seed: of the noise that images start from.
        keep_float: keep the weights of the modules, which are let go otherwise; `quiet`: no bars.

    Raises:
        UsageError: no prompts, an unknown module or option, or a module that is called in two ways.
        ModelError: torch cannot export a module, or no library can run it.
        DataError: a module is never called, or its values are not finite.
        DeviceError: a library or the GPU is missing, or the disk is full.
    """
    _check(prompts, steps, calibration_samples)
    level = level if isinstance(level, str) else f"{level:g}"
    options = _build_config(config or BuildConfig(), level, precisions, device)
    place = Path(folder) if folder is not None else Path(mkdtemp(prefix="quantrt-"))
    parts = find_parts(pipe, None if modules is None else tuple(modules))
    runs = _Runs(pipe, prompts, steps, dict(call_options or {}), seed)
    first = next(parts[0].module.parameters()).dtype
    with progress_bars(quiet=quiet) as bars:
        recordings = [Recording(part, place / part.name / "samples") for part in parts]
        images = _record(runs, recordings, calibration_samples, bars)
        before = runs.timed()
        reports = tuple(_replace(one, options, runs, bars, keep_float=keep_float) for one in recordings)
        after_images = runs.all(bars, "images with engines")
        after = runs.timed()
    return PipelineReport(level, reports, before, after, images, after_images, _TITLES.get(first, str(first)))


def _check(prompts: Sequence[Prompt], steps: int, calibration_samples: int) -> None:
    if not prompts:
        raise UsageError("cannot calibrate without prompts", hint="prompts=[...]")
    check_positive("number of steps", steps)
    check_positive("number of calibration samples", calibration_samples)


@dataclass
class _Runs:
    """Runs of the pipeline, each prompt from its own noise."""

    pipe: Any
    prompts: Sequence[Prompt]
    steps: int
    options: dict[str, Any]
    seed: int

    def images(self, number: int) -> list[np.ndarray]:
        """The images of one prompt."""
        prompt = self.prompts[number]
        given = {"prompt": prompt} if isinstance(prompt, str) else dict(prompt)
        generator = torch.Generator("cpu").manual_seed(self.seed + number)
        with torch.no_grad():
            result = self.pipe(
                **{**self.options, **given},
                num_inference_steps=self.steps,
                generator=generator,
                output_type="np",
            )
        return [np.asarray(image, np.float32) for image in result.images]

    def all(
        self, bars: Bars, title: str, on_prompt: Callable[[int], None] = lambda number: None
    ) -> list[np.ndarray]:
        """The images of all prompts, in their order."""
        count = bars.counter(title, "prompts")
        found: list[np.ndarray] = []
        for number in range(len(self.prompts)):
            count(number, len(self.prompts))
            on_prompt(number)
            found += self.images(number)
        count(len(self.prompts), len(self.prompts))
        return found

    def timed(self) -> RunTime:
        """Times of one run of the first prompt, which was run before."""
        return time_run(timed_parts(self.pipe), lambda: len(self.images(0)))

    @property
    def held_out(self) -> str:
        """What the names of samples of the prompt begin with that engines are checked on; empty for none."""
        return f"p{len(self.prompts) - 1:03d}-" if len(self.prompts) > 1 else ""


def _build_config(config: BuildConfig, level: str, precisions: Iterable[str], device: str) -> BuildConfig:
    return replace(
        config,
        precisions=frozenset({"fp32", *precisions}),
        quantize=replace(config.quantize, quantization_level=level),
        device=replace(config.device, device=device),
    )


def _record(runs: _Runs, recordings: list[Recording], limit: int, bars: Bars) -> list[np.ndarray]:
    """Run all prompts with the parts recorded; their images."""

    def start(number: int) -> None:
        for one in recordings:
            one.start_prompt(number)
            if one.part.name in DENOISERS:
                one.every = _stride(runs.steps, len(runs.prompts), limit)

    with recording(recordings):
        return runs.all(bars, "recording", start)


def _stride(steps: int, prompts: int, limit: int) -> int:
    """Every how many-th call to keep, so that all steps have their turn: a number prime to that of steps."""
    stride = max(1, math.ceil(steps * prompts / limit))
    while math.gcd(stride, steps) != 1:
        stride += 1
    return stride


def _replace(
    one: Recording, options: BuildConfig, runs: _Runs, bars: Bars, *, keep_float: bool
) -> PartReport:
    """Export and build one part, and put the engine in its place."""
    call, result = one.forms()
    folder = one.folder.parent
    path = folder / "model.onnx"
    module = one.part.module
    place = next(module.parameters()).detach()[:0]
    count = bars.counter(f"exporting {one.part.name}", "models")
    count(0, 1)
    export_module(module, call, result, one.example, path)
    count(1, 1)
    peaks = {"exported": peak_memory()}
    engine, samples = _build(one, path, options, runs, bars)
    peaks["built"] = peak_memory()
    engine.save(folder / "engine.qrt")
    one.part.replace(EngineModule(engine, module, call, result, place))
    if not keep_float:
        module.to("meta")
    return PartReport(
        name=one.part.name,
        engine=folder / "engine.qrt",
        precision=engine.precision,
        reason=str(engine.report["verdict"]["reason"]),
        samples=samples,
        onnx_bytes=sum(file.stat().st_size for file in folder.glob("model.onnx*")),
        engine_bytes=(folder / "engine.qrt").stat().st_size,
        peak_memory=peaks,
        notes=tuple(engine.report["notes"]),
    )


def _build(one: Recording, path: Path, options: BuildConfig, runs: _Runs, bars: Bars) -> tuple[Engine, int]:
    """The engine of an exported part, and the number of samples it was calibrated on."""
    model = load_model(path)
    names = frozenset(spec.name for spec in model.inputs)
    files = sorted(one.folder.glob("*.npz"))
    held_out = [file for file in files if runs.held_out and file.name.startswith(runs.held_out)]
    rest = [file for file in files if file not in set(held_out)] or files
    spread = max(1, len(held_out) // VALIDATION_SAMPLES)
    engine = build(
        model,
        config=replace(
            options, bench=replace(options.bench, batch=options.bench.batch or batch_of(one.example))
        ),
        calibration=Samples(rest, names),
        validation=Samples(held_out[::spread], names) if held_out else None,
        on_event=bars.on_event,
    )
    return engine, len(rest)
