# SPDX-License-Identifier: Apache-2.0
"""A metric of the user's: a function of outputs and labels that is told what is wrong with it."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

import numpy as np

from quantrt.budget import MetricFunction, name_of
from quantrt.calibrate.readers.functions import failure_text, find_function
from quantrt.errors import UsageError

__all__ = ["UserMetric", "given"]

EXPECTED = "function(outputs, labels), each a dict of arrays [samples, ...]"
MOST_SHOWN = 80
"""Characters of what was returned, in a message."""
MOST_ARRAYS = 8
"""Outputs or labels that a message names."""


class UserMetric:
    """Calls the function, and makes a float of what it returns.

    Attributes:
        name: `module:function`.

    Args:
        metric: the function, or its name.

    Raises:
        UsageError: there is no such function, or it does not take two arguments.
    """

    def __init__(self, metric: str | MetricFunction) -> None:
        self.name = metric if isinstance(metric, str) else name_of(metric)
        self._is_named = isinstance(metric, str)
        self._function: MetricFunction = find_function(metric) if isinstance(metric, str) else metric
        _check_arguments(self._function, self.name)

    def __call__(self, outputs: Mapping[str, Any], labels: Mapping[str, Any]) -> float:
        """The score, which may be NaN.

        Raises:
            UsageError: the function fails, or returns no number; with what it was given.
        """
        try:
            value = self._function(dict(outputs), dict(labels))
        except Exception as error:  # whatever a function of the user's does
            raise UsageError(
                f"the metric '{self.name}' failed",
                got=failure_text(error),
                expected=f"a float from {given(outputs, labels)}",
                hint=self._hint(error, has_labels=bool(labels)),
            ) from error
        score = _number(value)
        if score is None:
            raise UsageError(
                f"the metric '{self.name}' returned no number",
                got=_told(value),
                expected=f"a float from {given(outputs, labels)}",
            )
        return score

    def _hint(self, error: Exception, *, has_labels: bool) -> str:
        if isinstance(error, KeyError) and not has_labels:
            return "an array 'labels' in the validation data, or --labels"
        if self._is_named:
            return "the same with --traceback, which shows where"
        return "`print(outputs, labels)` in it"


def given(outputs: Mapping[str, Any], labels: Mapping[str, Any]) -> str:
    """What a metric is called with: "outputs 'y' float32 [5, 3] and labels 'labels' int64 [5]"."""
    return f"outputs {_arrays(outputs)} and {f'labels {_arrays(labels)}' if labels else 'no labels'}"


def _arrays(named: Mapping[str, Any]) -> str:
    told = [f"'{name}' {_array(value)}" for name, value in named.items()]
    rest = [f"{len(told) - MOST_ARRAYS} more"] if len(told) > MOST_ARRAYS else []
    return ", ".join([*told[:MOST_ARRAYS], *rest])


def _array(value: Any) -> str:
    if isinstance(value, list):
        first = f", the first {_array(value[0])}" if value else ""
        return f"a list of {len(value)} arrays{first}"
    return f"{value.dtype} {list(value.shape)}"


def _number(value: Any) -> float | None:
    if isinstance(value, (str, bytes)) or getattr(value, "ndim", None):
        return None
    try:
        return float(value)
    except (TypeError, ValueError):
        return None


def _told(value: Any) -> str:
    kind = f"an array {_array(value)}" if isinstance(value, np.ndarray) else type(value).__name__
    return f"{kind}: {' '.join(repr(value).split())}"[:MOST_SHOWN]


def _check_arguments(function: MetricFunction, name: str) -> None:
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):  # some of those written in C tell none
        return
    try:
        signature.bind({}, {})
    except TypeError as error:
        called = name.rpartition(":")[2].rpartition(".")[2]
        raise UsageError(
            f"the metric '{name}' cannot be called with outputs and labels: {error}",
            got=f"{called}{signature}",
            expected=EXPECTED,
        ) from error
