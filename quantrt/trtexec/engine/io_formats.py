# SPDX-License-Identifier: Apache-2.0
"""--inputIOFormats and --outputIOFormats in QuantRT's terms: element types, and layouts that there are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from quantrt.config import BindingConfig
from quantrt.errors import UsageError
from quantrt.ir.layout import layout_named
from quantrt.ir.tensor_spec import TensorSpec
from quantrt.model.binding import SHORT_NAMES, read_layouts
from quantrt.trtexec.flags.settings import BuildSettings
from quantrt.trtexec.flags.values import IoFormat

__all__ = ["bindings_of", "laid_out"]

LINEAR = "chw"

_LAYOUTS: Mapping[str, tuple[str, int]] = {
    "hwc": ("nhwc", 1),
    "hwc8": ("nhwc", 8),
    "hwc16": ("nhwc", 16),
    "dhwc": ("ndhwc", 1),
    "dhwc8": ("ndhwc", 8),
    "chw2": ("nchw2", 2),
    "chw4": ("nchw4", 4),
    "chw16": ("nchw16", 16),
    "chw32": ("nchw32", 32),
    "cdhw32": ("ncdhw32", 32),
}
"""trtexec's formats -> QuantRT's layout, and what the channels are padded to a multiple of."""


def bindings_of(
    settings: BuildSettings, inputs: Sequence[TensorSpec], outputs: Sequence[TensorSpec]
) -> BindingConfig:
    """What the builder is told of inputs and outputs.

    Of several formats the first that there is counts.

    Args:
        inputs, outputs: of the model.

    Raises:
        UsageError: there is no such format for a tensor, or not as many as there are tensors.
    """
    took = _asked("--inputIOFormats", "input", settings.input_formats, inputs)
    gave = _asked("--outputIOFormats", "output", settings.output_formats, outputs)
    return BindingConfig(
        input_types=_types(took),
        output_types=_types(gave),
        input_layouts=tuple(f"{spec.name}:{layout}" for spec, _, layout in took if layout),
        output_layouts=tuple(f"{spec.name}:{layout}" for spec, _, layout in gave if layout),
    )


def laid_out(specs: Sequence[TensorSpec], texts: Sequence[str]) -> tuple[TensorSpec, ...]:
    """A model's inputs with the dimensions that an engine with these layouts has.

    Args:
        texts: as BindingConfig.input_layouts.
    """
    layouts = read_layouts(texts, specs, flag="--inputIOFormats")
    return tuple(layouts[spec.name].in_memory(spec) if spec.name in layouts else spec for spec in specs)


def _asked(
    flag: str, what: str, formats: Sequence[IoFormat], specs: Sequence[TensorSpec]
) -> list[tuple[TensorSpec, str | None, str]]:
    """(tensor, type, layout) of each; no type for the model's own, no layout for rows."""
    if not formats:
        return []
    if len(formats) not in (1, len(specs)):
        raise UsageError(
            f"{flag} has to name one format, or one for each {what}", got=f"{len(formats)} for {len(specs)}"
        )
    # one for all, or one each
    found = tuple(formats) * (len(specs) // len(formats))
    return [(spec, one.dtype, _layout(flag, what, spec, one)) for spec, one in zip(specs, found, strict=True)]


def _types(asked: Sequence[tuple[TensorSpec, str | None, str]]) -> tuple[str, ...]:
    return tuple(f"{spec.name}:{kind}" for spec, kind, _ in asked if kind is not None)


def _layout(flag: str, what: str, spec: TensorSpec, asked: IoFormat) -> str:
    """The first of the formats that the tensor can have; empty for rows."""
    reasons = []
    for name in asked.formats:
        if name == LINEAR:
            return ""
        reason = _why_not(spec, name)
        if reason is None:
            return _LAYOUTS[name][0]
        reasons.append(reason)
    own = SHORT_NAMES.get(spec.dtype, spec.dtype)
    raise UsageError(
        f"{what} '{spec.name}' cannot be {'+'.join(asked.formats)}: {'; '.join(reasons)}",
        got=str(spec),
        hint=f"{flag}={asked.dtype or own}:{LINEAR}",
    )


def _why_not(spec: TensorSpec, name: str) -> str | None:
    """Why a tensor cannot have a format; None when it can."""
    if name not in _LAYOUTS:
        return "there is no DLA"
    layout, multiple = _LAYOUTS[name]
    row = layout_named(layout)
    if spec.shape is None or row is None:
        return "the model does not tell its axes"
    if len(spec.shape) != 2 + row.spatial:
        return f"{name} is for tensors with {2 + row.spatial} axes"
    channels = spec.shape[1]
    if multiple > 1 and (not isinstance(channels, int) or channels % multiple):
        return f"{name} pads {channels} channels to a multiple of {multiple}, and nothing is padded here"
    return None
