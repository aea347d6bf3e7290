# SPDX-License-Identifier: Apache-2.0
"""The layers of an engine for a GPU at other batch sizes than those its regions were timed at.

The file has the sizes of one set of shapes: the best ones of the first profile. Sizes, bytes and operations
at another batch follow from them; what was timed does not, and is left out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from quantrt.report.engine_layers.layer import EngineLayer, TensorForm, size_bytes

__all__ = ["layers_at", "timed_shapes"]

Shape = tuple[int, ...]

_TIMED = ("beside_us", "beside_layers", "estimated_us")
"""Attributes that are times."""


def timed_shapes(layers: Sequence[EngineLayer], inputs: Sequence[str]) -> dict[str, Shape]:
    """The shapes at which the regions were timed, of those inputs that a region reads as they are."""
    return {
        form.name: tuple(size for size in form.dims if isinstance(size, int))
        for layer in layers
        for form in layer.inputs
        if form.name in inputs and form.dims is not None
    }


def layers_at(layers: Sequence[EngineLayer], shapes: Mapping[str, Shape]) -> tuple[EngineLayer, ...]:
    """The layers at these shapes of the inputs. Where more than the batch differs, sizes are not known."""
    timed = timed_shapes(layers, list(shapes))
    if not timed or all(shapes[name] == shape for name, shape in timed.items()):
        return tuple(layers)
    batches = {(shape[0], shapes[name][0]) for name, shape in timed.items() if shape and shapes[name]}
    is_batch = len(batches) == 1 and all(shapes[name][1:] == shape[1:] for name, shape in timed.items())
    if not is_batch:
        return tuple(_without_sizes(layer) for layer in layers)
    ((before, now),) = batches
    return tuple(_at_batch(layer, before, now) for layer in layers)


def _without_times(layer: EngineLayer) -> EngineLayer:
    attributes = {name: value for name, value in layer.attributes.items() if name not in _TIMED}
    rivals = tuple(replace(rival, median_us=None) for rival in layer.rivals)
    return replace(layer, median_us=None, rivals=rivals, attributes=attributes)


def _without_sizes(layer: EngineLayer) -> EngineLayer:
    inputs, outputs = (
        tuple(replace(form, dims=None) for form in forms) for forms in (layer.inputs, layer.outputs)
    )
    return replace(_without_times(layer), bytes_moved=None, operations=None, inputs=inputs, outputs=outputs)


def _at_batch(layer: EngineLayer, before: int, now: int) -> EngineLayer:
    """A layer all of whose activations have the batch ahead, alone or times something."""
    forms = (*layer.inputs, *layer.outputs)
    sizes = [size_bytes(form.dims, form.dtype) for form in forms]
    if any(size is None or not _leads(form, before) for form, size in zip(forms, sizes, strict=True)):
        return _without_sizes(layer)
    activations = sum(size or 0 for size in sizes)
    moved, operations = layer.bytes_moved, layer.operations
    return replace(
        _without_times(layer),
        bytes_moved=None if moved is None else moved + activations * (now - before) // before,
        operations=None if operations is None else operations * now // before,
        inputs=tuple(_scaled(form, before, now) for form in layer.inputs),
        outputs=tuple(_scaled(form, before, now) for form in layer.outputs),
    )


def _leads(form: TensorForm, batch: int) -> bool:
    """Whether the first size is a multiple of the batch."""
    first = form.dims[0] if form.dims else None
    return isinstance(first, int) and first % batch == 0


def _scaled(form: TensorForm, before: int, now: int) -> TensorForm:
    dims = form.dims or ()
    return replace(form, dims=(int(dims[0]) // before * now, *dims[1:]))
