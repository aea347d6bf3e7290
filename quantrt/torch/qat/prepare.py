# SPDX-License-Identifier: Apache-2.0
"""Put fake quantization into a torch module where an engine of it will quantize."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from quantrt.calibrate.dataset import Dataset, open_dataset
from quantrt.calibrate.stats import Stats
from quantrt.config import CalibrationConfig, QuantizeConfig
from quantrt.errors import DataError, ModelError, UsageError
from quantrt.model.load import make_model
from quantrt.model.model import Model
from quantrt.quantize.fit.equalized import Equalized
from quantrt.quantize.fit.fit import Fitted, fit, sample_reference
from quantrt.quantize.fit.observe import observe
from quantrt.quantize.target import Target
from quantrt.quantize.targets import target_named
from quantrt.quantize.targets.cuda import CUDA
from quantrt.torch.qat.bare_module import bare_module
from quantrt.torch.qat.edges import place_traced
from quantrt.torch.qat.insert import insert
from quantrt.torch.qat.prepared import PreparedModel
from quantrt.torch.qat.start import Start
from quantrt.torch.qat.trace import trace

__all__ = ["TorchBatches", "prepare"]

LEAST_EXAMPLES = 2
"""In a batch that is traced: torch.export takes an axis of 1 for one of that size alone."""

NO_PLACE = "that would change what is no parameter of one layer alone"
"""Why a twin of the float model is not tried."""

Calibration = Stats | str | Path | Mapping[str, Any] | Iterable[Any]


def prepare(
    model: nn.Module,
    example_inputs: torch.Tensor | tuple[Any, ...],
    calibration: Calibration,
    *,
    target: str | Target = "ort",
    learn_scales: bool = True,
    config: QuantizeConfig | None = None,
    calibration_config: CalibrationConfig | None = None,
    dynamic_shapes: Any = None,
) -> PreparedModel:
    """A copy of `model` whose quantized edges are rounded as an engine for `target` rounds them.

    The copy is traced in evaluation mode: dropouts stay and follow train() and eval(), batch normalization is
    frozen, and what else the forward does by `self.training` is as in evaluation.

    Args:
        example_inputs: the tensor that forward takes, or a tuple of its arguments, of two samples or more.
        calibration: what training starts from is fitted to: batches as a DataLoader gives them (tensors, or
            tuples that begin with the inputs; what follows is left out), whatever `quantrt.build` takes as
            calibration, or statistics of an earlier calibration, which show no biases to correct.
        target: "ort", "openvino", "tensorrt" or "cuda", or a table of rules.
        learn_scales: train the scales too; otherwise they stay as calibrated.
        config: what is quantized, and by which algorithms it starts; those of `quantrt quantize`.
        dynamic_shapes: as torch.export takes them; by default the first axis of every input counts samples.

    Raises:
        UsageError: no module, one prepared already or of 16-bit floats, one example alone, no such target or
            exclusion, a target of float codes, or scales per token.
        ModelError: torch cannot export the module, or nothing of it can be quantized.
        DataError: calibration data do not fit.
    """
    config, calibration_config = config or QuantizeConfig(), calibration_config or CalibrationConfig()
    rules = _target(target)
    if config.weights != "int8":
        raise UsageError("training is of 8-bit codes", got=f"weights={config.weights!r}", expected="'int8'")
    if config.activations != "static":
        raise UsageError(
            "training is of static scales", got=f"activations={config.activations!r}", expected="'static'"
        )
    model = bare_module(model)
    inputs = _inputs_of(example_inputs, dynamic_shapes)
    traced = trace(model, inputs, dynamic_shapes or _batched(inputs))
    floats = make_model(traced.onnx)
    placement, edges = place_traced(traced.network, floats, rules, config)
    if not placement.values:
        raise ModelError(
            f"nothing of {type(model).__name__} can be quantized for {rules.name}",
            got="; ".join(sorted({row.reason for row in placement.decisions})[:3]),
        )
    start = Start(traced, floats, placement, edges)
    first, start_notes = start.take(_fit(start, calibration, rules, config, calibration_config))
    recipe = insert(traced.network, traced.onnx, first, edges, is_learned=learn_scales)
    device = next((parameter.device for parameter in traced.network.parameters()), None)
    if device is not None:
        traced.network.to(device)  # what was added too
    notes = list(start_notes)
    if traced.folded:
        notes.append(f"{traced.folded} batch normalizations are part of the weights before them, frozen")
    return PreparedModel(traced.network, recipe, tuple(notes))


def _inputs_of(example_inputs: Any, dynamic_shapes: Any) -> tuple[Any, ...]:
    """The arguments of forward, checked for what torch.export would not tell of clearly."""
    inputs = (example_inputs,) if isinstance(example_inputs, torch.Tensor) else tuple(example_inputs)
    tensors = [value for value in inputs if isinstance(value, torch.Tensor) and value.ndim]
    if dynamic_shapes is None and any(len(value) < LEAST_EXAMPLES for value in tensors):
        raise UsageError(
            "cannot trace with one sample: torch takes a batch of 1 for a constant",
            got=f"example_inputs of {', '.join(str(list(value.shape)) for value in tensors)}",
            expected=f"{LEAST_EXAMPLES} samples or more, along the first axis of each",
            hint="`example_inputs=torch.cat([x, x])`, whose values do not matter",
        )
    return inputs


def _target(target: str | Target) -> Target:
    if not isinstance(target, Target):
        return CUDA if target == CUDA.name else target_named(target, (CUDA.name,))
    if target.activation.dtype.is_float or target.weight_dtype.is_float:
        raise UsageError(
            f"cannot train for target '{target.name}'", got=target.precision, expected="integer codes"
        )
    return target


def _batched(example_inputs: tuple[Any, ...]) -> Any:
    """One number of samples for all inputs that are tensors."""
    batch = torch.export.Dim("batch")
    return tuple(
        {0: batch} if isinstance(value, torch.Tensor) and value.ndim else None for value in example_inputs
    )


def _fit(
    start: Start, calibration: Calibration, target: Target, config: QuantizeConfig, options: CalibrationConfig
) -> Fitted:
    """Quantization after training, of what the module can hold."""
    model = start.floats
    if isinstance(calibration, Stats):
        stats, reference = calibration, sample_reference(model, None, config, options)
    else:
        samples = _opened(model, calibration)
        stats, reference = observe(model, sorted(start.placement.values), samples, config, options)
    held: list[Equalized] = []
    left: list[Equalized] = []
    for twin in reference.twins:
        (held if start.can_hold(twin) else left).append(twin)
    fitted = fit(
        model,
        stats,
        target,
        replace(reference, twins=tuple(held)),
        config=config,
        calibration=options,
        kept_float=start.edges.kept_float,
    )
    notes = [f"not {twin.label.lstrip(', ')}: {NO_PLACE}" for twin in left]
    return replace(fitted, model=replace(fitted.model, notes=(*fitted.model.notes, *notes)))


def _opened(model: Model, calibration: str | Path | Mapping[str, Any] | Iterable[Any]) -> Dataset:
    """Samples that are read several times; batches that come once are kept."""
    if not isinstance(calibration, (str, Path, Mapping)):
        batches = list(calibration) if isinstance(calibration, Iterator) else calibration
        calibration = TorchBatches(batches, [spec.name for spec in model.inputs])
    return open_dataset(calibration, model.inputs)


@dataclass(frozen=True)
class TorchBatches:
    """Batches of tensors as dicts of arrays.

    Attributes:
        names: of the model's inputs, in order.
    """

    batches: Any
    names: list[str]

    def __iter__(self) -> Iterator[dict[str, np.ndarray]]:
        for batch in self.batches:
            if isinstance(batch, Mapping):
                yield {name: _array(value) for name, value in batch.items()}
                continue
            values = batch if isinstance(batch, (tuple, list)) else (batch,)
            if len(values) < len(self.names):
                raise DataError(
                    "a calibration batch has too few inputs",
                    got=str(len(values)),
                    expected=", ".join(self.names),
                )
            yield {name: _array(value) for name, value in zip(self.names, values, strict=False)}


def _array(value: Any) -> np.ndarray:
    return value.detach().cpu().numpy() if isinstance(value, torch.Tensor) else np.asarray(value)
