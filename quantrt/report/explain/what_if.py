# SPDX-License-Identifier: Apache-2.0
"""What would change if layers ran in another precision.

Measured where the engine or another one holds the time, else estimated. Of the build the ratio counts, for it
was taken on another day; of layers that are fused otherwise there, the ratio of all that share their nodes.
Estimated is the roofline's time in that precision, over the part of its present roofline that the layer
reaches; a layer that launches bind keeps what it takes beyond its roofline. None of this has the conversions
in it that the change would add or save at the layer's borders.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Sequence
from dataclasses import dataclass

from quantrt.dtypes import CODE_PRECISIONS
from quantrt.errors import UsageError, close_match
from quantrt.report.engine_layers.layer import EngineLayer
from quantrt.report.explain.against import Beside
from quantrt.report.explain.peaks import Peaks
from quantrt.report.explain.rows import LayerRow
from quantrt.report.explain.times import AT_BUILD, ESTIMATED

__all__ = ["Prediction", "predict", "select"]

_BYTES = {**dict.fromkeys(CODE_PRECISIONS, 1), "fp16": 2, "bf16": 2, "fp32": 4}


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
        near = close_match(pattern, [name for row in rows for name in _names(row.layer)])
        raise UsageError(
            f"no layer of the engine matches '{pattern}'",
            expected="the name of a layer or of a node, or a glob",
            hint=f"'{near}'" if near else "`quantrt explain ENGINE --all` lists the layers",
        )
    return found


def predict(
    row: LayerRow, precision: str, peaks: Peaks | None, beside: Beside | None, name: str
) -> Prediction:
    """A layer in `precision`.

    Args:
        beside: the layer in another engine in that precision, timed here; None without one.
        name: of that engine.
    """
    layer = row.layer
    at_build = layer.attributes.get("beside_us", {}).get(precision)
    there_us = None if beside is None else _part_us(row, beside)
    if layer.precision == layer.computes_in == precision:
        predicted_us, basis = row.time_us, f"it is in {precision} already"
    elif beside is not None and there_us is not None:
        predicted_us, basis = there_us, f"measured here, in {name}{_of_group(len(beside.layers))}"
    elif at_build is not None and row.time_us is not None and layer.median_us:
        predicted_us = row.time_us * float(at_build) / layer.median_us
        basis = AT_BUILD + _of_group(layer.attributes.get("beside_layers", {}).get(precision, 1))
    else:
        predicted_us, basis = _estimate(row, precision, peaks)
    return Prediction(
        layer=layer.name, precision=precision, time_us=row.time_us, predicted_us=predicted_us, basis=basis
    )


def _part_us(row: LayerRow, beside: Beside) -> float | None:
    """The layer's part of what the other engine takes: as large as its part of those that share its nodes."""
    if row.time_us is None or beside.time_us is None or beside.other_us is None:
        return None
    if len(beside.layers) == 1:
        return beside.other_us
    return row.time_us * beside.other_us / beside.time_us if beside.time_us else None


def _of_group(layers: int) -> str:
    return f", of {layers} layers together" if layers > 1 else ""


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
