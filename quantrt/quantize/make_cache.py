# SPDX-License-Identifier: Apache-2.0
"""Statistics as a calibration cache: a symmetric int8 scale for every tensor that was observed."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from quantrt.calibrate.caches.origin import Origin, scales_hash
from quantrt.calibrate.caches.trt_cache import DEFAULT_HEADER, TrtCache
from quantrt.calibrate.given import share_scales
from quantrt.calibrate.ranges.grid import Grid as RangeGrid
from quantrt.calibrate.ranges.ranges import choose_range
from quantrt.calibrate.stats import Stats, TensorStats
from quantrt.config import CalibrationConfig
from quantrt.model.model import Model
from quantrt.quantize.scales.qparams import choose_qparams
from quantrt.quantize.targets.tensorrt import TENSORRT

__all__ = ["float_activations", "make_cache", "symmetric_scale"]


def float_activations(model: Model) -> tuple[str, ...]:
    """Every float tensor between the nodes of the main graph, inputs and outputs among them, in order.

    TensorRT keeps a layer float unless all tensors it consumes and produces have scales (its builder warns of
    each that is missing): more than what this package quantizes.
    """
    graph = model.graph.graph
    values = [*graph.inputs, *(value for node in graph for value in node.outputs)]
    return tuple(
        value.name
        for value in values
        if value.name and value.dtype == ir.DataType.FLOAT and value.const_value is None
    )


def make_cache(
    model: Model, stats: Stats, config: CalibrationConfig, name: str, header: str = DEFAULT_HEADER
) -> TrtCache:
    """The cache that gives a quantized model of TensorRT's rules the scales it has from `stats`.

    What only moves values has the scale of what it moves. A tensor of the file that canonicalization took
    away is in the cache where another has its very values.

    Args:
        name: of the cache, such as its path.
    """
    own = {
        tensor: symmetric_scale(stats.tensors[tensor], config)
        for tensor in float_activations(model)
        if tensor in stats.tensors
    }
    scales = dict(share_scales(model.graph.graph, own, name).scales)
    scales |= {
        gone: scales[same] for gone, same in model.absent.items() if same is not None and same in scales
    }
    origin = Origin(
        model.fingerprint, stats.samples, stats.data_hash, stats.is_random, config.method, scales_hash(scales)
    )
    return TrtCache(name, header, scales, {}, origin, tuple(_notes(model, scales)))


def symmetric_scale(stats: TensorStats, config: CalibrationConfig) -> float:
    """The scale of symmetric int8 codes for what was observed of a tensor."""
    grid = TENSORRT.activation
    found = choose_range(stats, RangeGrid(grid.levels, grid.symmetric, grid.signed), config)
    qparams = choose_qparams(
        np.asarray(found.lo, np.float32),
        np.asarray(found.hi, np.float32),
        dtype=grid.dtype,
        symmetric=grid.symmetric,
        qmin=grid.qmin,
        qmax=grid.qmax,
    )
    return float(qparams.scale)


def _notes(model: Model, scales: dict[str, float]) -> list[str]:
    notes = []
    left = [name for name in float_activations(model) if name not in scales]
    if left:
        notes.append(
            f"{len(left)} float tensors have no scale, such as '{left[0]}': TensorRT keeps the layers beside "
            "them float; calibrating with -o X.cache observes them all"
        )
    colons = [name for name in scales if ":" in name]
    if colons:
        notes.append(
            f"{len(colons)} names hold a colon, such as '{colons[0]}': ONNX Runtime reads them up to it alone"
        )
    return notes
