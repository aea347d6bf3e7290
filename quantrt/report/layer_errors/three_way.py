# SPDX-License-Identifier: Apache-2.0
"""Float, fake-quantized and compiled model, layer by layer, as JSON-ready facts."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np
import onnx_ir as ir

from quantrt.calibrate.dataset import Dataset
from quantrt.config import DEFAULT_MIN_SQNR_DB, CompareConfig
from quantrt.errors import ModelError
from quantrt.ir.edit import constant_of, is_operator
from quantrt.ir.session import float_session
from quantrt.model.model import Model
from quantrt.quantize.algorithms.balance_tables import balance_like
from quantrt.quantize.qdq.switches import FLAGS, Switched, switch_layers
from quantrt.reference.metrics import Error
from quantrt.reference.row_sets import RowSet, in_rows_of, row_sets
from quantrt.report.layer_errors.damage import Damage, measure_damage
from quantrt.report.layer_errors.equalized import with_fitted_scales
from quantrt.report.layer_errors.extents import ACTIVATIONS, find_extents
from quantrt.report.layer_errors.graphs import fake_graph_of, float_model_of
from quantrt.report.layer_errors.measure import LayerErrors, measure_layers
from quantrt.report.layer_errors.not_finite import find_not_finite, first_in_engine
from quantrt.report.layer_errors.sessions import Part
from quantrt.report.subject import Subject

__all__ = ["PATH_TOLERANCES", "Counter", "compare_three_ways", "uncounted"]

PATH_TOLERANCES = {"fp32": 1e-3, "fp16": 1e-2, "bf16": 6e-2}
"""By what an engine computes its floats in: how far a tensor may be from the fake-quantized one, as a ratio
of root mean squares. Sums in another order move a value near the boundary of two codes across it, about one
in 10,000 in fp32, and by one step of hundreds; in 11 and 8 bits of mantissa so many more."""

PROVEN_DB = 60.0
"""With all switches off the switched graph is the float model, with all on the fake-quantized one."""

Arrays = Mapping[str, np.ndarray]
Counter = Callable[[str, str], Callable[[int, int | None], None]]


def uncounted(title: str, unit: str) -> Callable[[int, int | None], None]:
    """Progress that nobody sees."""
    return lambda done, total: None


def compare_three_ways(
    reference: Subject, subject: Subject, dataset: Dataset, config: CompareConfig, counter: Counter
) -> dict[str, Any]:
    """The layers of a quantized model or engine against the float model it was made of.

    Args:
        counter: makes a progress callback of a title and a unit.

    Raises:
        UsageError: the subject was made of another model.
        ModelError: its quantization cannot be told apart from the rest.
    """
    model = float_model_of(reference, subject)
    fake = fake_graph_of(model, subject)
    equalized = with_fitted_scales(model, fake)
    switched = switch_layers(fake, balance_like(equalized.graph, fake))
    outputs = _float_outputs(model)
    sets = row_sets(model.graph.graph)
    _prove(switched, {"float": model.graph, "fake-quantized": fake}, outputs, sets, _first(dataset, config))
    extents = find_extents(fake, switched.layers, subject.model.library, subject.tensors())
    on_layers = counter("comparing layers", "layers")
    found = measure_layers(switched, extents, subject, dataset, config, on_progress=on_layers)
    limit_db = config.min_sqnr_db if config.min_sqnr_db is not None else DEFAULT_MIN_SQNR_DB
    damage = measure_damage(
        switched,
        outputs,
        dataset,
        config,
        limit_db=limit_db,
        sets=sets,
        on_progress=counter("one layer at a time", "runs"),
    )
    tolerance = PATH_TOLERANCES[subject.options.float_precision]
    left = [row for row in found if _leaves_path(row, tolerance)]
    parameters = _parameters(equalized)
    missing = [*find_not_finite(switched, dataset, config), *first_in_engine(found)]
    return {
        "layers": [_layer_row(row, damage, tolerance, parameters) for row in found],
        "engine": {
            "library": subject.model.library,
            "float_precision": subject.options.float_precision,
            "tolerance_ratio": tolerance,
            "compared": sum(row.compiled is not None for row in found),
            "leaves_path_at": left[0].extent.layer.name if left else None,
        },
        "not_finite": [asdict(row) for row in missing],
        "damage": _damage_rows(switched, damage, limit_db),
    }


def _float_outputs(model: Model) -> list[str]:
    names = [
        spec.name for spec in model.outputs if spec.dtype in ("float32", "float16", "float64", "bfloat16")
    ]
    if not names:
        raise ModelError("the model has no floating-point output to measure noise on")
    return names


def _first(dataset: Dataset, config: CompareConfig) -> Arrays:
    return next(iter(dataset.batches(config.batch_size, config.max_samples))).inputs


def _prove(
    switched: Switched,
    models: Mapping[str, ir.Model],
    outputs: Sequence[str],
    sets: Sequence[RowSet],
    inputs: Arrays,
) -> None:
    """Fail unless the switched graph is both models.

    Args:
        models: the float one, then the fake-quantized one.
    """
    part = Part(switched.graph, outputs)
    every = range(len(switched.layers))
    for (what, graph), flags in zip(models.items(), (switched.flags(), switched.flags(*every)), strict=True):
        wanted = dict(zip(outputs, _run(graph, outputs, inputs), strict=True))
        got = in_rows_of(wanted, part.run({**inputs, FLAGS: flags}), sets)
        for name in outputs:
            if not _are_same(wanted[name], got[name]):
                raise ModelError(
                    "cannot compare layer by layer: the two models differ by more than quantization",
                    got=f"output '{name}' of the {what} model is not had by switching layers",
                    hint="`quantrt compare MODEL.onnx QUANTIZED --data P --layers` with its own ONNX file",
                )


def _run(graph: ir.Model, outputs: Sequence[str], inputs: Arrays) -> list[Any]:
    known = {value.name for value in graph.graph.inputs}
    feed = {name: array for name, array in inputs.items() if name in known}
    return list(float_session(graph, optimize=False).run(list(outputs), feed))


def _are_same(a: np.ndarray, b: np.ndarray) -> bool:
    finite = np.isfinite(a)
    if a.shape != b.shape or not np.array_equal(finite, np.isfinite(b)):
        return False
    error = Error()
    error.add(a[finite], b[finite])
    return error.sqnr_db >= PROVEN_DB


def _leaves_path(row: LayerErrors, tolerance: float) -> bool:
    """Whether the engine is further from the fake-quantized model than rounding explains.

    Where two computations differ by rounding, each next rounding to codes spreads the difference, until the
    two have nothing but the float model in common. Both as far from that as quantization makes, they are at
    most twice as far from each other; so that, measured on the same tensor, is allowed beside the tolerance.
    """
    if row.compiled is None:
        return False
    allowed = tolerance + 2 * math.sqrt(row.rounded.noise_ratio)
    return not math.sqrt(row.path.noise_ratio) <= allowed  # NaN leaves it too


def _parameters(model: Model) -> dict[str, str]:
    """The last parameter that each node of the float model reads: many exporters name those alone."""
    found = {}
    for node in model.graph.graph:
        if is_operator(node, *ACTIVATIONS):
            continue
        constants = [
            value.name for value in node.inputs if value is not None and constant_of(value) is not None
        ]
        if constants:
            found[node.name or ""] = constants[-1] or ""
    return found


def _layer_row(
    row: LayerErrors, damage: Damage, tolerance: float, parameters: Mapping[str, str]
) -> dict[str, Any]:
    layer = row.extent.layer
    group = next(group for group in damage.ratios if layer.index in group)
    return {
        "name": layer.name,
        "op_type": layer.op_type,
        "output": row.extent.output,
        "reads": list(layer.reads),
        "parameter": next((parameters[n] for n in reversed(row.extent.nodes) if n in parameters), None),
        "alone": _figures(row.alone),
        "quantized": _figures(row.quantized),
        "compiled": None if row.compiled is None else _figures(row.compiled),
        "compiled_against_quantized": None if row.compiled is None else _figures(row.path),
        "leaves_path": _leaves_path(row, tolerance),
        "share_ratio": damage.share_of(group) if len(group) == 1 else None,
    }


def _figures(error: Error) -> dict[str, float]:
    return {
        "sqnr_db": error.sqnr_db,
        "cosine": error.cosine,
        "max_abs": error.max_abs,
        "elements": error.count,
    }


def _damage_rows(switched: Switched, damage: Damage, limit_db: float) -> dict[str, Any]:
    order = sorted(damage.ratios, key=lambda group: _ascending(damage.ratios[group]))
    return {
        "samples": damage.samples,
        "limit_db": limit_db,
        "total_db": damage.total_db,
        "worst": [
            {
                "layers": [switched.layers[index].name for index in group],
                "share_ratio": damage.share_of(group),
                "alone_db": damage.alone_db(group),
            }
            for group in order
        ],
        "in_floats": [
            {"layers": [switched.layers[index].name for index in repair.layers], "sqnr_db": repair.sqnr_db}
            for repair in damage.repairs
        ],
    }


def _ascending(ratio: float) -> float:
    return -math.inf if math.isnan(ratio) else -ratio
