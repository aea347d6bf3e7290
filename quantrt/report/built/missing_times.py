# SPDX-License-Identifier: Apache-2.0
"""What each range that a calibration cache lacks costs in time, estimated from the layer times of a build.

The nodes that stay float without the range took now_us in the 8-bit candidate of a build. With it they would
take

    where they were 8-bit there:       now_us, and in floats what they took in the float candidate
    where they were float there too:   now_us * (8-bit time / float time of all layers that are 8-bit)

and the estimate is the difference. It leaves out conversions beside them, and what else a library would fuse.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from quantrt.dtypes import CODE_PRECISIONS
from quantrt.errors import UsageError
from quantrt.model.model import Model
from quantrt.plan.plan import Plan
from quantrt.quantize.targets.cuda import CUDA
from quantrt.quantize.targets.cuda_fp8 import CUDA_FP8
from quantrt.quantize.targets.onnxruntime import ORT
from quantrt.quantize.targets.openvino import OPENVINO
from quantrt.report.built.candidate_times import has_layers, together_us, told_layers
from quantrt.report.engine_layers.graph import align_names

__all__ = ["missing_times", "missing_times_of"]

_Group = tuple[frozenset[str], float, float]
"""Nodes that both candidates compute together, and the microseconds of the float and of the 8-bit one."""


def missing_times(
    missing: Mapping[str, Mapping[str, Sequence[str]]],
    candidates: Sequence[Mapping[str, Any]],
    names: Sequence[str],
    float_nodes: Mapping[str, Collection[str]],
) -> dict[str, dict[str, Any]]:
    """By tensor {"library", "cost_us", "of_us"}: microseconds that it costs, and those of all layers now.

    Of the library whose 8-bit candidate is fastest; a tensor that costs nothing there is not in it. Empty
    where a build has not the times of both.

    Args:
        missing: by tensor and target, the nodes that are float without it.
        candidates: rows of a build's report.
        names: of the canonical model's nodes, as the rows number them.
        float_nodes: by candidate, those that are float in it although it is an 8-bit one.
    """
    pair = _pair(candidates)
    if pair is None:
        return {}
    floating, coded = pair
    floats = frozenset(float_nodes.get(str(coded["name"]), ()))
    told = told_layers(coded, names)
    groups = _groups(told_layers(floating, names), told)
    total_us = sum(time_us for time_us, _ in told if time_us is not None)
    ratio = _ratio([group for group in groups if not group[0] & floats])
    library, target = str(coded["library"]), _target(coded)
    found = {}
    for tensor, by_target in missing.items():
        nodes = frozenset(by_target.get(target, ()))
        cost_us = _cost_us([group for group in groups if group[0] & nodes], floats, ratio)
        if cost_us is not None and total_us > 0:
            found[tensor] = {"library": library, "cost_us": round(cost_us, 1), "of_us": round(total_us, 1)}
    return found


def missing_times_of(
    plan: Plan, missing: Mapping[str, Mapping[str, Sequence[str]]], model: Model
) -> dict[str, dict[str, Any]]:
    """The same, from what the build of an engine of the model timed.

    Raises:
        UsageError: the engine is of another model, or its build timed no 8-bit candidate beside a float one.
    """
    if plan.fingerprint.graph != model.fingerprint.graph:
        raise UsageError(
            "cannot take layer times from this engine: it is of another model",
            hint="--times with an engine of this model: `quantrt build MODEL.onnx --int8 ... -o ENGINE.qrt`",
        )
    report = plan.report
    rows = report.get("candidates", ())
    if _pair(rows) is None:
        raise UsageError(
            "cannot take layer times from this engine: its build timed no 8-bit candidate beside a float one",
            hint="an engine that was built with --int8 where it is to run",
        )
    shipped = report.get("verdict", {}).get("shipped")
    lacked = report.get("calibration_cache") or {"missing": {}}
    nodes = {node for by in lacked["missing"].values() for found in by.values() for node in found}
    floats: dict[str, Collection[str]] = {row["name"]: nodes for row in rows}
    if plan.precision in CODE_PRECISIONS:
        floats[shipped] = [layer.name for layer in plan.layers if layer.precision not in CODE_PRECISIONS]
    return missing_times(missing, rows, [layer.name for layer in plan.layers], floats)


def _pair(candidates: Sequence[Mapping[str, Any]]) -> tuple[Mapping[str, Any], Mapping[str, Any]] | None:
    """The fastest 8-bit candidate with told layers, and a float one, of the same library if there is.

    What was too slow to be timed to the end is behind all others.
    """
    told = [row for row in candidates if has_layers(row)]
    coded = [row for row in told if row["precision"] in CODE_PRECISIONS]
    for row in sorted(coded, key=_median_ms):
        others = [
            other
            for other in told
            if other["precision"] == row["float_precision"]
            and other["layer_times"]["shapes"] == row["layer_times"]["shapes"]
        ]
        others.sort(key=lambda other: other["library"] != row["library"])
        if others:
            return others[0], row
    return None


def _median_ms(row: Mapping[str, Any]) -> float:
    latency = row.get("latency")
    return math.inf if latency is None else float(latency["median_ms"])


def _target(row: Mapping[str, Any]) -> str:
    """Whose rules a candidate was quantized by."""
    if row["library"] == "cuda":
        return CUDA_FP8.name if row["precision"] == CUDA_FP8.precision else CUDA.name
    return (ORT if row["library"] == "onnxruntime" else OPENVINO).name


def _groups(
    floating: Sequence[tuple[float | None, tuple[str, ...]]],
    coded: Sequence[tuple[float | None, tuple[str, ...]]],
) -> list[_Group]:
    """Layers of the two that compute the same nodes, where both have times."""
    found = []
    for group in align_names([nodes for _, nodes in floating], [nodes for _, nodes in coded]):
        float_us = together_us([floating[place][0] for place in group.left])
        coded_us = together_us([coded[place][0] for place in group.right])
        if float_us is not None and coded_us is not None:
            found.append((frozenset(group.names), float_us, coded_us))
    return found


def _ratio(groups: Sequence[_Group]) -> float | None:
    """Time in 8 bits over time in floats; None where nothing is 8-bit."""
    float_us = sum(group[1] for group in groups)
    return sum(group[2] for group in groups) / float_us if float_us else None


def _cost_us(groups: Sequence[_Group], float_nodes: frozenset[str], ratio: float | None) -> float | None:
    """What these layers would save; None where it is not known, or nothing."""
    saved_us = 0.0
    for nodes, float_us, coded_us in groups:
        if not nodes & float_nodes:
            saved_us += float_us - coded_us
        elif ratio is None:
            return None
        else:
            saved_us += coded_us * (1.0 - ratio)
    return saved_us if saved_us > 0.0 else None
