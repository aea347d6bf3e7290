# SPDX-License-Identifier: Apache-2.0
"""Nodes that stay in floats because the outputs gain by it, every other one in 8 bits."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from quantrt.config import QuantizeConfig
from quantrt.quantize.fit.trials import Trials
from quantrt.quantize.quantized_model import QuantizedModel

__all__ = ["FLOAT_INPUTS", "FLOAT_SUMS", "Kind", "kinds", "try_in_floats"]

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
class Kind:
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


SUMS = Kind(
    FLOAT_SUMS,
    "a residual sum, in floats: the outputs gain by it",
    SUMS_GAIN,
    lambda model: model.residual_sums,
)
INPUTS = Kind(
    FLOAT_INPUTS,
    "it reads an input of the model, in floats: the outputs gain by it",
    INPUTS_GAIN,
    lambda model: model.input_layers,
)


def kinds(config: QuantizeConfig) -> Iterator[Kind]:
    """Those that a configuration wants tried, in this order."""
    if config.float_sums:
        yield SUMS
    if config.float_inputs:
        yield INPUTS


def try_in_floats(
    best: str,
    kind: Kind,
    trials: Trials,
    make: Callable[..., QuantizedModel],
    kept_float: Mapping[str, str] | None,
) -> tuple[str, Mapping[str, str] | None]:
    """Add the best model with nodes in floats; the kind's label where that gains, and what stays float then.

    Args:
        make: quantizes by the range method of the best model.
    """
    nodes = kind.of(trials.models[best])
    if not nodes:
        return "", kept_float
    kept, label = {**(kept_float or {}), **dict.fromkeys(nodes, kind.reason)}, best + kind.label
    gains = trials.better(best, label, make(kept_float=kept), kind.gain) == label
    return (kind.label, kept) if gains and trials.holds(best, label, kind.gain) else ("", kept_float)
