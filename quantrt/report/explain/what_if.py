# SPDX-License-Identifier: Apache-2.0
"""What would change if layers ran in another precision.

Measured where the engine or another one holds the time (of the build the ratio counts, for it was taken on
another day), else estimated: the roofline's time in that
precision, over the part of its present roofline that the layer reaches; a layer that launches bind keeps what
it takes beyond its roofline. Either way conversions that the change would add or save at the layer's borders
are not in it.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from quantrt.errors import UsageError
from quantrt.report.engine_layer import EngineLayer
from quantrt.report.explain.peaks import Peaks
from quantrt.report.explain.rows import LayerRow
from quantrt.report.explain.times import AT_BUILD, ESTIMATED, Times

__all__ = ["PRECISIONS", "Prediction", "predict", "select", "times_by_node"]

PRECISIONS = ("int8", "fp16", "bf16", "fp32")

_BYTES = {"int8": 1, "fp16": 2, "bf16": 2, "fp32": 4}


@dataclass(frozen=True, kw_only=True)
class Prediction:
    """One layer in another precision.

    Attributes:
        time_us: now; predicted_us: then; None where nothing is known, and `basis` says why.
        basis: "measured at build", "measured here, in ...", "estimated", or why there is no figure.
    """

    layer: str
    precision: str
    time_us: float | None
    predicted_us: float | None
    basis: str

    @property
    def gain_us(self) -> float | None:
        """What is saved; negative for a loss."""
        if self.time_us is None or self.predicted_us is None:
            return None
        return self.time_us - self.predicted_us


def select(rows: Sequence[LayerRow], pattern: str) -> tuple[LayerRow, ...]:
    """Layers whose name, or one of whose nodes or sources, matches a name or glob.

    Raises:
        UsageError: none does.
    """
    found = tuple(row for row in rows if any(_matches(name, pattern) for name in _names(row.layer)))
    if not found:
        raise UsageError(
            f"no layer of the engine matches '{pattern}'",
            expected="the name of a layer or of a node, or a glob",
            hint="`quantrt explain ENGINE --all` lists the layers",
        )
    return found


def predict(
    row: LayerRow, precision: str, peaks: Peaks | None, against: Mapping[str, float] | None, name: str
) -> Prediction:
    """A layer in `precision`.

    Args:
        against: by node, microseconds of the layers of another engine in that precision; None without one.
        name: of that engine.
    """
    layer, predicted_us = row.layer, None
    beside = layer.attributes.get("beside_us", {})
    there_us = 0.0 if against is None else sum(against.get(node, 0.0) for node in layer.nodes)
    if layer.precision == layer.computes_in == precision:
        predicted_us, basis = row.time_us, f"it is in {precision} already"
    elif precision in beside and row.time_us is not None and layer.median_us:
        predicted_us, basis = row.time_us * float(beside[precision]) / layer.median_us, AT_BUILD
    elif there_us:  # nothing is what a node takes whose layer there has its time on another node
        predicted_us, basis = there_us, f"measured here, in {name}"
    else:
        predicted_us, basis = _estimate(row, precision, peaks)
    return Prediction(
        layer=layer.name, precision=precision, time_us=row.time_us, predicted_us=predicted_us, basis=basis
    )


def times_by_node(layers: Sequence[EngineLayer], times: Times) -> dict[str, float]:
    """Microseconds of another engine's layers, each on the first of its nodes and nothing on the others."""
    found: dict[str, float] = {}
    for layer in layers:
        for number, node in enumerate(layer.nodes):
            found[node] = found.get(node, 0.0) + (times.layer_us.get(layer.name, 0.0) if number == 0 else 0.0)
    return found


def _estimate(row: LayerRow, precision: str, peaks: Peaks | None) -> tuple[float | None, str]:
    layer = row.layer
    if row.roofline_us is None or not row.reached_ratio or peaks is None or layer.bytes_moved is None:
        return None, "its work or its time is not known, so there is no estimate"
    if not layer.operations:
        return None, "not a product: its precision follows from its neighbours"
    compute_us = peaks.compute_us(layer.operations, precision)
    now, then = _BYTES.get(layer.precision), _BYTES.get(precision)
    if compute_us is None or now is None or then is None:
        return None, f"the peak of {precision} is not known here"
    least_us = max(compute_us, peaks.memory_us(int(layer.bytes_moved * then / now)))
    if row.bound == "launch" and row.time_us is not None:
        return max(peaks.launch_us, row.time_us + least_us - row.roofline_us), ESTIMATED
    return max(peaks.launch_us, least_us / min(row.reached_ratio, 1.0)), ESTIMATED


def _matches(name: str, pattern: str) -> bool:
    return name == pattern or fnmatch.fnmatchcase(name, pattern)


def _names(layer: EngineLayer) -> tuple[str, ...]:
    return (layer.name, *layer.nodes, *layer.sources)
