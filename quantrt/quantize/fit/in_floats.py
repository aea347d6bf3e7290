# SPDX-License-Identifier: Apache-2.0
"""Nodes that stay in floats because the outputs gain by it, every other one in 8 bits."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from quantrt.config import QuantizeConfig
from quantrt.quantize.fit.trials import Trials
from quantrt.quantize.quantized_model import QuantizedModel

__all__ = ["FLOAT_INPUTS", "FLOAT_SUMS", "try_in_floats"]

FLOAT_SUMS = ", sums in floats"
"""Added to the range method of a model whose residual sums are computed in floats."""

FLOAT_INPUTS = ", inputs in floats"
"""The same where layers read the model's inputs in floats."""

SUMS_GAIN = 0.95
"""Measured noise with residual sums in floats over that with sums of codes, above which floats are not worth
their time: a quarter of a decibel, on the samples that are fitted on and on LEAST_MORE others."""

INPUTS_GAIN = 0.5
"""The same of the layers that read inputs, whose products then are in floats: 3 dB."""


@dataclass(frozen=True)
class _Kind:
    """Nodes that may be in floats together.

    Attributes:
        label: added to the range method where they are.
        reason: why they are, in decisions.
        gain: noise with them in floats over that without, above which they stay in codes.
        of: the names of those that are in codes.
    """

    label: str
    reason: str
    gain: float
    of: Callable[[QuantizedModel], tuple[str, ...]]


SUMS = _Kind(
    FLOAT_SUMS,
    "a residual sum, in floats: the outputs gain by it",
    SUMS_GAIN,
    lambda model: model.residual_sums,
)
INPUTS = _Kind(
    FLOAT_INPUTS,
    "it reads an input of the model, in floats: the outputs gain by it",
    INPUTS_GAIN,
    lambda model: model.input_layers,
)


def try_in_floats(
    method: str,
    config: QuantizeConfig,
    trials: Trials,
    make: Callable[..., QuantizedModel],
    kept_float: Mapping[str, str] | None,
) -> tuple[str, Mapping[str, str] | None]:
    """Add the model of a range method with nodes in floats, of every kind that config wants tried.

    Args:
        make: quantizes by that range method.

    Returns:
        The labels of what gains, and what stays float then.
    """
    added = ""
    for kind in _kinds(config):
        best = method + added
        nodes = kind.of(trials.models[best])
        if not nodes:
            continue
        kept, label = {**(kept_float or {}), **dict.fromkeys(nodes, kind.reason)}, best + kind.label
        gains = trials.better(best, label, make(kept_float=kept), kind.gain) == label
        if gains and trials.holds(best, label, kind.gain):
            added, kept_float = added + kind.label, kept
    return added, kept_float


def _kinds(config: QuantizeConfig) -> Iterator[_Kind]:
    if config.float_sums:
        yield SUMS
    if config.float_inputs:
        yield INPUTS
