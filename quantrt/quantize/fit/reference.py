# SPDX-License-Identifier: Apache-2.0
"""The float model on calibration samples, and the noise of quantized ones beside it."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import onnx_ir as ir
import onnxruntime

from quantrt.calibrate.dataset import Batch, Dataset
from quantrt.calibrate.taps import is_float
from quantrt.config import CalibrationConfig, QuantizeConfig
from quantrt.device import saturates
from quantrt.errors import ModelError
from quantrt.ir.no_memory import check_memory
from quantrt.ir.session import ORT_ERRORS, float_session
from quantrt.model.model import Model
from quantrt.quantize.algorithms.bias_correction import ChannelMeans, observe_channel_means
from quantrt.quantize.fit.equalized import Equalized, make_twins
from quantrt.quantize.qdq.write import write
from quantrt.quantize.quantize import with_integer_biases
from quantrt.quantize.quantized_model import QuantizedModel
from quantrt.reference.metrics import Error, in_one_shape
from quantrt.reference.row_sets import RowSet, in_rows_of, row_sets

__all__ = [
    "FIT_SAMPLES",
    "Reference",
    "more_samples",
    "observe_reference",
    "output_noise",
    "sample_reference",
    "unseen_noises",
]

Array = np.ndarray[Any, Any]
Inputs = Mapping[str, Array]

FIT_SAMPLES = 64
"""Calibration samples that are run again, to measure output error and channel means."""

MORE_SAMPLES = 256
"""Samples behind those, at most, that a choice which was made on those is checked on."""

LEAST_MORE = 64
"""With fewer behind them, halves of the first tell as much."""


@dataclass(frozen=True)
class Reference:
    """The float model on a few calibration samples.

    Attributes:
        graph: the float model.
        batches: inputs by name; none when only ranges are given.
        means: channel means of layer inputs over these samples; None when biases are not corrected.
        twins: the model with equalized or smoothed channels; none where nothing gains by it.
        seen: the outputs, when the model has run for its means.
        more: further calibration samples, read when they are asked for; None where there are none.
    """

    graph: ir.Model
    batches: Sequence[Inputs]
    means: ChannelMeans | None = None
    twins: tuple[Equalized, ...] = ()
    seen: Sequence[Sequence[Array]] | None = None
    more: Callable[[], Iterable[Batch]] | None = None

    @property
    def is_comparable(self) -> bool:
        """Whether there is an output that noise can be measured on."""
        return bool(self.batches) and any(is_float(value) for value in self.graph.graph.outputs)

    @cached_property
    def names(self) -> tuple[str, ...]:
        """Of the floating-point outputs, in the model's order."""
        return tuple(value.name or "" for value in self.graph.graph.outputs if is_float(value))

    @cached_property
    def sets(self) -> tuple[RowSet, ...]:
        """Outputs whose rows have no order of their own."""
        return row_sets(self.graph.graph)

    @cached_property
    def outputs(self) -> Sequence[Sequence[Array]]:
        """The floating-point outputs for each batch, in the model's order."""
        if self.seen is not None:
            return self.seen
        session = float_session(self.graph)
        return [_run(session, batch) for batch in self.batches]

    def half(self, first: int) -> Reference | None:
        """Every other batch from the one at `first`, 0 or 1, on; None where there is none."""
        batches = self.batches[first::2]
        return replace(self, batches=batches, seen=self.outputs[first::2]) if batches else None


def observe_reference(
    model: Model, batches: Sequence[Inputs], config: QuantizeConfig, twins: Sequence[Equalized] = ()
) -> Reference:
    """The float model on a few samples; none gives a reference that nothing is measured against.

    Args:
        twins: its equalized and smoothed twins, to be tried too.
    """
    if not batches:
        return Reference(model.graph, ())
    if not config.bias_correction:
        return Reference(model.graph, batches, twins=tuple(twins))
    seen: list[list[Array]] = []
    means = observe_channel_means(model.graph, batches, lambda outputs: seen.append(_floating(outputs)))
    return Reference(model.graph, batches, means, tuple(twins), seen)


def sample_reference(
    model: Model,
    samples: Dataset | None,
    config: QuantizeConfig,
    options: CalibrationConfig,
    *,
    batch_size: int = 1,
    with_twins: bool = True,
) -> Reference:
    """The float model on the first calibration samples, and its twins; without samples, neither.

    Args:
        batch_size: of a run; every layer's input is held at once, and larger runs are hardly faster.
        with_twins: equalize and smooth channels where config wants that; not where scales are given.
    """
    if samples is None:
        return observe_reference(model, (), config)
    limit = min(FIT_SAMPLES, options.max_samples or FIT_SAMPLES)
    batches = [batch.inputs for batch in samples.batches(batch_size, limit)]
    twins = make_twins(model, samples, config, limit=options.max_samples) if with_twins else ()
    reference = observe_reference(model, batches, config, twins)
    return replace(reference, more=more_samples(samples, options, batch_size))


def more_samples(
    samples: Dataset, options: CalibrationConfig, batch_size: int = 1
) -> Callable[[], Iterator[Batch]]:
    """The calibration samples behind the first FIT_SAMPLES, at most MORE_SAMPLES of them, when called."""
    limit = min(FIT_SAMPLES + MORE_SAMPLES, options.max_samples or FIT_SAMPLES + MORE_SAMPLES)

    def read() -> Iterator[Batch]:
        return itertools.dropwhile(
            lambda batch: batch.first_sample < FIT_SAMPLES, samples.batches(batch_size, limit)
        )

    return read


def output_noise(quantized: QuantizedModel, reference: Reference) -> float:
    """Mean over outputs of noise power over signal power, in ONNX Runtime, in integers where sums fit."""
    noise = _Noise(quantized, reference)
    for batch, wanted in zip(reference.batches, reference.outputs, strict=True):
        noise.add(batch, wanted)
    return noise.ratio


def unseen_noises(
    models: Sequence[QuantizedModel], reference: Reference, limit: int = MORE_SAMPLES
) -> list[float] | None:
    """The same of several models, on some `limit` further samples; None with fewer than LEAST_MORE."""
    if reference.more is None:
        return None
    floats, samples = float_session(reference.graph), 0
    noises = [_Noise(model, reference) for model in models]
    for batch in reference.more():
        samples += batch.count
        wanted = _run(floats, batch.inputs)
        for noise in noises:
            noise.add(batch.inputs, wanted)
        if samples >= limit:
            break
    return [noise.ratio for noise in noises] if samples >= LEAST_MORE else None


class _Noise:
    """Of a quantized model's outputs, over batches."""

    def __init__(self, quantized: QuantizedModel, reference: Reference) -> None:
        self._session = float_session(write(quantized if saturates() else with_integer_biases(quantized)))
        self._sets = reference.sets
        self._errors = {name: Error() for name in reference.names}

    def add(self, batch: Inputs, wanted: Sequence[Array]) -> None:
        """Run one batch, beside the float model's outputs."""
        ref, got = (
            dict(zip(self._errors, outputs, strict=True)) for outputs in (wanted, _run(self._session, batch))
        )
        ordered = in_rows_of(ref, got, self._sets)
        for name, error in self._errors.items():
            error.add(*in_one_shape(ref[name], ordered[name]))

    @property
    def ratio(self) -> float:
        """Mean over outputs of noise power over signal power."""
        return float(np.mean([error.noise_ratio for error in self._errors.values()]))


def _run(session: onnxruntime.InferenceSession, batch: Inputs) -> list[Array]:
    """The floating-point outputs for one batch."""
    try:
        outputs = session.run(None, dict(batch))
    except ORT_ERRORS as error:
        check_memory(error)
        raise ModelError("ONNX Runtime cannot run the model", got=str(error).strip()) from error
    return _floating(outputs)


def _floating(outputs: Sequence[Any]) -> list[Array]:
    return [array for array in outputs if isinstance(array, np.ndarray) and array.dtype.kind == "f"]
