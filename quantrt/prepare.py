# SPDX-License-Identifier: Apache-2.0
"""The quantized side of a build: ranges from data or a cache, then a model per library and kind of codes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from quantrt.calibrate.caches.trt_cache import TrtCache, read_cache
from quantrt.calibrate.collect import collect
from quantrt.calibrate.dataset import Dataset
from quantrt.calibrate.given import Given
from quantrt.calibrate.stats import Stats
from quantrt.calibrate.unlike import without_unlike
from quantrt.calibrate.usual_sizes import made_up_data
from quantrt.config import BuildConfig, QuantizeConfig
from quantrt.errors import DataError, ModelError, UsageError
from quantrt.ir.edit import is_operator
from quantrt.model.model import Model
from quantrt.quantize.cache_match import CacheMatch, match_cache, match_notes
from quantrt.quantize.fit.fit import Fitted, Reference, fit, fit_own, keeps_scales, sample_reference
from quantrt.quantize.fit.kept_fits import KeptFits, origin_of
from quantrt.quantize.fit.observe import observe
from quantrt.quantize.placement.levels import why_level_left_all
from quantrt.quantize.placement.obstacle import is_quantized
from quantrt.quantize.quantize import observed_values
from quantrt.quantize.scales.kept_scales import KeptScales
from quantrt.quantize.target import Target
from quantrt.quantize.targets import TARGETS
from quantrt.quantize.weight_only import WeightOnly, quantize_weights
from quantrt.tactics.candidates import code_targets

__all__ = [
    "Event",
    "Job",
    "OnEvent",
    "Quantized",
    "check_ranges",
    "observable",
    "open_cache",
    "quantize_for_device",
    "quantize_weights_alone",
]

WEIGHT_SAMPLES = 128
"""That weights are rounded on, at most: as many as in the papers of GPTQ and AWQ."""

RANDOM_SAMPLES = 32
"""Samples of --calib-random: their ranges mean nothing, so a few do."""

KERNEL_STAGES = {"compile": ("compiling", "kernels"), "time": ("timing kernels", "workloads")}
"""Stages of the choice of kernels for a GPU, as events call them, with their units."""


@dataclass(frozen=True)
class Event:
    """Progress of one stage.

    Attributes:
        stage: "trying the metric", "calibrating", "quantizing", "opening", "timing" or "checking"; on a GPU
            also "compiling" and "timing kernels", again for every candidate.
        done, total: in `unit`; total is None when it is not known.
        candidate: the one that is opened or checked; empty of stages that are of several, or of none.
    """

    stage: str
    done: int
    total: int | None
    unit: str
    candidate: str = ""


OnEvent = Callable[[Event], None]


@dataclass(frozen=True)
class Job:
    """What every stage of one build needs.

    Attributes:
        ranged: inputs and outputs whose range is needed, whoever reads them.
    """

    model: Model
    config: BuildConfig
    device: Mapping[str, Any]
    emit: OnEvent
    ranged: tuple[str, ...] = ()

    def on_kernels(self, stage: str, done: int, total: int) -> None:
        """Emit what CudaLowering reports of a stage of its own."""
        name, unit = KERNEL_STAGES[stage]
        self.emit(Event(name, done, total, unit))


@dataclass(frozen=True)
class Quantized:
    """The quantized side of a build; without codes, only the data that were given.

    Attributes:
        samples: calibration samples, random ones among them.
        fits: a quantized model by library and precision.
        cache: the calibration cache beside the model.
        weight_only: the model with its weights alone in 4 bits, where that was asked for.
    """

    samples: Dataset | None
    stats: Stats | None
    fits: Mapping[tuple[str, str], Fitted] = field(default_factory=dict)
    cache: CacheMatch | None = None
    notes: tuple[str, ...] = ()
    weight_only: WeightOnly | None = None


def observable(model: Model) -> tuple[str, ...]:
    """The activations that any target quantizes by default, of which there must be some.

    Raises:
        ModelError: there are none.
    """
    names = tuple(observed_values(model, TARGETS, QuantizeConfig()))
    if not names:
        raise ModelError(
            f"there is nothing to calibrate in {model.called}",
            got="a model that is quantized already"
            if any(is_operator(node, "DequantizeLinear") for node in model.graph.graph)
            else "no operator that any target quantizes",
            expected="a float model with convolutions or matrix products",
        )
    return names


def check_ranges(stats: Stats | None, model: Model) -> None:
    """Ranges that are given are of this model.

    Raises:
        DataError: they are of another model, or of another checkpoint of it.
    """
    if stats is not None and stats.fingerprint != model.fingerprint:
        got, expected = (f"{f.graph[:12]}/{f.weights[:12]}" for f in (stats.fingerprint, model.fingerprint))
        raise DataError(
            "cannot use these ranges: they are of another model or checkpoint",
            got=f"graph/weights {got}",
            expected=expected,
        )


def open_cache(cache: TrtCache | str | Path | None, config: BuildConfig) -> TrtCache | None:
    """The calibration cache that is to be used.

    Raises:
        UsageError: no codes are asked for, or random data are.
        DataError: it cannot be read.
    """
    if cache is None:
        return None
    if not config.code_precisions:
        raise UsageError("a calibration cache is used by int8 and fp8 only", hint="precisions={'int8'}")
    if config.calibration.calib_random:
        raise UsageError(
            "cannot fill the gaps of a calibration cache with random data",
            hint="calibration data, or the cache alone",
        )
    return cache if isinstance(cache, TrtCache) else read_cache(cache)


def quantize_for_device(
    job: Job, samples: Dataset | None, stats: Stats | None, cache: TrtCache | None = None
) -> Quantized:
    """Calibrate once, and fit a quantized model per library and precision."""
    if keeps_scales(job.model, job.config) and cache is None:
        own = fit_own(job.model)
        notes = (f"the model is quantized already: its ranges are {own.method}",)
        return Quantized(samples, None, {("cuda", own.model.target.precision): own}, notes=notes)
    targets = code_targets(job.config, job.device)
    match = None if cache is None else match_cache(job.model, cache, targets.values(), job.config.quantize)
    names = observed_values(job.model, tuple(targets.values()), job.config.quantize)
    if not names and job.config.quantize.activations == "static":
        return Quantized(samples, stats, notes=(f"nothing was quantized: {_why_none(job)}",))
    names = tuple(dict.fromkeys((*names, *job.ranged)))
    if match is None:
        samples = _calibration_samples(samples, stats, job)
    else:
        names = tuple(name for name in names if name not in match.given.scales)
    check_ranges(stats, job.model)
    given = None if match is None else match.given
    kept = _kept_fits(job, samples, names, targets) if given is None and stats is None else None
    scales = _kept_scales(job.config)
    earlier = None if kept is None else kept.load(job.model, targets, job.config.quantize, scales)
    if kept is not None and earlier is not None:
        _save(scales)
        return Quantized(samples, *earlier, notes=(kept.note,))
    stats, reference = _observe(job, names, samples, stats, given)
    fits = _fit(job, stats, targets, reference, given=given, scales=scales)
    _save(scales)
    if kept is not None and stats is not None:
        kept.save(stats, fits)
    known = () if stats is None else stats.notes
    told = () if samples is None else tuple(note for note in samples.remarks if note not in known)
    return Quantized(
        samples, stats, fits, match, (*told, *(() if match is None else match_notes(match, stats)))
    )


def _kept_fits(
    job: Job, samples: Dataset | None, names: Sequence[str], targets: Mapping[tuple[str, str], Target]
) -> KeptFits | None:
    """Where fits of these samples are kept; None without samples, or without a timing cache."""
    timing_cache, config = _timing_cache(job.config), job.config
    if samples is None or timing_cache is None:
        return None
    origin = origin_of(
        job.model,
        samples,
        names=names,
        targets=targets,
        config=config.quantize,
        options=config.calibration,
    )
    return KeptFits(timing_cache, origin)


def _kept_scales(config: BuildConfig) -> KeptScales | None:
    """Where scales of weights are kept; None without a timing cache."""
    timing_cache = _timing_cache(config)
    return None if timing_cache is None else KeptScales(timing_cache)


def _timing_cache(config: BuildConfig) -> Path | None:
    """That of a build for a GPU; a CPU has none."""
    path = config.cuda.timing_cache
    return None if path is None or config.device.device != "cuda" else Path(path)


def _save(scales: KeptScales | None) -> None:
    if scales is not None:
        scales.save()


def quantize_weights_alone(job: Job, samples: Dataset | None) -> Quantized:
    """Round the weights to 4 bits, on samples where the rounding wants some."""
    options = job.config.calibration
    limit = min(WEIGHT_SAMPLES, options.max_samples or WEIGHT_SAMPLES)
    batches = [] if samples is None else [b.inputs for b in samples.batches(options.batch_size, limit)]
    made = quantize_weights(
        job.model,
        batches,
        job.config.quantize,
        target="cuda" if job.config.device.device == "cuda" else "ort",
        on_progress=lambda done, total: job.emit(Event("quantizing", done, total, "weights")),
    )
    return Quantized(samples, None, weight_only=made)


def _why_none(job: Job) -> str:
    if is_quantized(job.model.graph.graph):
        return "the model is quantized already, and runs as it is"
    if job.config.quantize.quantization_level != "auto":
        return why_level_left_all(job.model.graph.graph, job.config.quantize.quantization_level)
    return "no node of the model has an 8-bit form"


def _calibration_samples(samples: Dataset | None, stats: Stats | None, job: Job) -> Dataset | None:
    """The data to calibrate on; random only when asked for."""
    options = job.config.calibration
    if samples is not None and not options.keep_unlike:
        return without_unlike(samples, options.max_samples)
    if samples is not None or stats is not None or job.config.quantize.activations == "per-token":
        return samples
    if options.calib_random:
        return made_up_data(job.model, options.max_samples or RANDOM_SAMPLES, options.seed)
    raise UsageError(
        f"cannot build an {' or '.join(job.config.code_precisions)} engine without calibration",
        expected="calibration data, or ranges of an earlier calibration",
        hint="calibration=..., stats=..., QuantizeConfig(activations='per-token') of a transformer, or "
        "CalibrationConfig(calib_random=True) to measure speed only",
    )


def _observe(
    job: Job, names: Sequence[str], samples: Dataset | None, stats: Stats | None, given: Given | None
) -> tuple[Stats | None, Reference]:
    """The ranges of `names`, for all targets together, and what fitting has to know of the float model."""
    config, options = job.config.quantize, job.config.calibration

    def on_progress(done: int, total: int | None) -> None:
        job.emit(Event("calibrating", done, total, "samples"))

    if stats is None and samples is not None and given is None:
        return observe(job.model, names, samples, config, options, on_progress=on_progress)
    if stats is None and samples is not None and names:
        stats = collect(job.model, names, samples, options, on_progress=on_progress)
    has_twins = stats is not None and given is None
    return stats, sample_reference(job.model, samples, config, options, with_twins=has_twins)


def _fit(
    job: Job,
    stats: Stats | None,
    targets: Mapping[tuple[str, str], Target],
    reference: Reference,
    *,
    given: Given | None,
    scales: KeptScales | None,
) -> dict[tuple[str, str], Fitted]:
    """A quantized model per library and precision."""
    options = job.config.calibration
    job.emit(Event("quantizing", 0, len(targets), "targets"))
    fits: dict[tuple[str, str], Fitted] = {}
    for done, (key, target) in enumerate(targets.items()):
        job.emit(Event("quantizing", done, len(targets), "targets"))
        fits[key] = fit(
            job.model,
            stats,
            target,
            reference,
            config=job.config.quantize,
            calibration=options,
            given=given,
            scales=scales,
        )
    job.emit(Event("quantizing", len(targets), len(targets), "targets"))
    return fits
