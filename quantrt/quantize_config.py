# SPDX-License-Identifier: Apache-2.0
"""How activations are observed, and what is quantized and how: the options of these two stages.

The others, and how the command line makes options of fields, are in `quantrt.config`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from quantrt.errors import UsageError
from quantrt.option_checks import check_choice, check_positive

__all__ = [
    "DEFAULT_GROUP_SIZE",
    "QUANTIZATION_LEVELS",
    "RANGE_METHODS",
    "CalibrationConfig",
    "QuantizeConfig",
    "option",
]

DEFAULT_GROUP_SIZE = 64
"""Inputs of a weight in 4 bits that share a scale: 4.5 bits a weight."""

RANGE_METHODS = ("auto", "minmax", "entropy", "percentile", "mse")
QUANTIZATION_LEVELS = ("1", "2", "2.5", "3", "4", "auto")
WEIGHTS = ("int8", "int4")
ACTIVATIONS = ("static", "per-token")
GROUP_SIZES = (32, 64, 128)
WEIGHT_ROUNDINGS = ("nearest", "gptq", "adaround", "awq", "awq+gptq")
SMOOTHINGS = ("off", "folded", "multiplied")


def option(default: Any, help: str, **metadata: Any) -> Any:
    """A dataclass field that carries its command-line help."""
    return field(default=default, metadata={"help": help, **metadata})


@dataclass(frozen=True, kw_only=True)
class CalibrationConfig:
    """How activations are observed."""

    method: str = option("auto", "range method, chosen per tensor from the histograms", choices=RANGE_METHODS)
    percentile: float = option(99.99, "two-sided coverage in percent, for --method percentile", metavar="P")
    max_samples: int | None = option(None, "use at most this many samples (default: all)", metavar="N")
    batch_size: int = option(8, "samples per run where shapes allow; does not change the result", metavar="N")
    calib_random: bool = option(False, "calibrate on random data; brands the engine 'uncalibrated'")
    seed: int = option(0, "seed of --calib-random", metavar="N")
    keep_unlike: bool = option(False, "keep samples whose values are far beyond those of all others")
    memory_mb: int = option(256, "bound on tapped activations held at once, in MB per batch", metavar="MB")

    def __post_init__(self) -> None:
        check_choice("method", self.method, RANGE_METHODS)
        check_positive("batch size", self.batch_size)
        check_positive("memory bound in MB", self.memory_mb)
        if self.max_samples is not None:
            check_positive("number of calibration samples", self.max_samples)
        if not 50.0 < self.percentile <= 100.0:
            raise UsageError("cannot use this percentile", got=str(self.percentile), expected="50 < P <= 100")


@dataclass(frozen=True, kw_only=True)
class QuantizeConfig:
    """What is quantized, and how."""

    exclude: tuple[str, ...] = option((), "keep these nodes float: name or glob, repeatable", metavar="GLOB")
    exclude_types: tuple[str, ...] = option((), "keep these operator types float, repeatable", metavar="OP")
    only: tuple[str, ...] = option(
        (),
        "let no other nodes be 8-bit than these: name or glob, repeatable",
        metavar="GLOB",
        flag="--only",
    )
    per_channel: bool = option(True, "one weight scale per output channel (otherwise per tensor)")
    bias_correction: bool = option(True, "correct the mean shift that rounding the weights causes")
    equalization: bool = option(True, "bring channels to like ranges where the outputs gain by it")
    smoothing: str = option(
        "off",
        "SmoothQuant: move outlier channels of activations into the weights that read them, where outputs "
        "gain: folded into what makes them, which costs nothing; multiplied also by new multiplications",
        choices=SMOOTHINGS,
    )
    adaptive_rounding: bool = option(
        False,
        "AdaRound: round weights by what their layers make of real inputs, where the outputs gain by it",
    )
    measured_biases: bool = option(
        False,
        "correct biases by what layers make of rounded weights and activations, where the outputs gain by it",
    )
    range_search: bool = option(
        False, "search every activation's range again by the error of the model's outputs (slow)"
    )
    float_sums: bool = option(
        False,
        "residual sums in floats where the outputs gain by it, in libraries that round both of their sides; "
        "all products stay in 8 bits (slower engines)",
    )
    float_inputs: bool = option(
        False,
        "layers that read the model's inputs in floats where the outputs gain 3 dB by it (slower engines)",
    )
    weights: str = option(
        "int8",
        "int4: weights alone, in 4 bits, activations in floats",
        choices=WEIGHTS,
        flag="--weights",
    )
    activations: str = option(
        "static",
        "scales of activations: static by calibration; per-token found as the model runs, one for each row "
        "that a product with a weight reads",
        choices=ACTIVATIONS,
        flag="--activations",
    )
    group_size: int | None = option(
        None, "inputs that share a scale, with --weights int4: 32, 64 or 128 (default: 64)", metavar="N"
    )
    weight_rounding: str = option(
        "gptq", "how weights become 4 bits, with --weights int4", choices=WEIGHT_ROUNDINGS
    )
    quantization_level: str = option(
        "auto",
        "what may be 8-bit: 1 convolutions, 2 also feed-forward layers, 2.5 also projections of attention, "
        "3 also all other linear layers, 4 also attention; auto allows everything",
        choices=QUANTIZATION_LEVELS,
    )

    def __post_init__(self) -> None:
        check_choice("smoothing", self.smoothing, SMOOTHINGS)
        check_choice("kind of weights", self.weights, WEIGHTS)
        check_choice("rounding of weights", self.weight_rounding, WEIGHT_ROUNDINGS)
        check_choice("kind of activation scales", self.activations, ACTIVATIONS)
        if self.activations == "per-token" and self.weights == "int4":
            raise UsageError(
                "activations beside weights in 4 bits are floats, and have no scales",
                got="activations 'per-token', weights 'int4'",
                hint="--weights int8",
            )
        if self.group_size is not None and self.weights != "int4":
            raise UsageError("groups are of weights in 4 bits", hint="--weights int4")
        if self.group_size not in (None, *GROUP_SIZES):
            raise UsageError(
                "cannot use this group size",
                got=str(self.group_size),
                expected="32, 64 or 128",
                hint="--group-size 64",
            )
        check_choice("quantization level", self.quantization_level, QUANTIZATION_LEVELS)
