# SPDX-License-Identifier: Apache-2.0
"""How much accuracy may be lost, and what it is measured by: a metric's name, or a function.

The other options, and how the command line makes options of fields, are in `quantrt.config`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, SupportsFloat

from quantrt.errors import UsageError
from quantrt.quantize_config import option

__all__ = ["Budget", "MetricFunction", "name_of"]

MetricFunction = Callable[[dict[str, Any], dict[str, Any]], SupportsFloat]
"""(outputs, labels) -> a number, larger is better. Both are dicts of arrays [samples, ...], or of lists with
an array per sample where these differ in shape."""


@dataclass(frozen=True, kw_only=True)
class Budget:
    """How much accuracy the engine may lose against the float model.

    For top1 and metrics of your own the drop is (float - engine) / float; for cosine it is 1 - cosine; for
    sqnr it is noise power over signal power (0.01 is 20 dB).

    Args:
        metric: "top1", "cosine", "sqnr", or a function, which is called with two dicts, outputs and labels,
            of arrays [samples, ...] or of lists with an array per sample where these differ in shape; it
            returns a float, larger is better. Its name will do too, "module:function": of a script or a
            notebook the module is `__main__`. "auto" is top1 where there are labels, else cosine.
        max_drop_ratio: the largest accepted drop, from 0 to 1.

    Raises:
        UsageError: the ratio is no such fraction, or the metric is neither a name nor a function.
    """

    metric: str | MetricFunction = option("auto", "top1, cosine, sqnr or module:function", metavar="METRIC")
    max_drop_ratio: float = option(0.01, "largest accepted drop, as a fraction (0.01 is 1 %%)", metavar="R")

    def __post_init__(self) -> None:
        metric: object = self.metric
        if not isinstance(metric, str) and not callable(metric):
            raise UsageError(
                "a metric is given by its name, or as a function",
                got=f"{type(metric).__name__} {metric!r}"[:80],
                expected="top1, cosine, sqnr, module:function, or a function of outputs and labels",
            )
        if not 0.0 <= self.max_drop_ratio <= 1.0:
            raise UsageError(
                "cannot use this budget",
                got=f"max drop {self.max_drop_ratio}",
                expected="a fraction from 0 to 1",
                hint="--max-drop 0.01 for 1 %",
            )

    @property
    def metric_name(self) -> str:
        """The metric by its name: of a function `module:function`."""
        return self.metric if isinstance(self.metric, str) else name_of(self.metric)


def name_of(function: Callable[..., Any]) -> str:
    """`module:function`, as a function is called where it is defined; an object by its class."""
    while isinstance(function, partial):
        function = function.func
    named = function if hasattr(function, "__qualname__") else type(function)
    return f"{named.__module__}:{named.__qualname__}"
