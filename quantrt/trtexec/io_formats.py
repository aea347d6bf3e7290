# SPDX-License-Identifier: Apache-2.0
"""--inputIOFormats and --outputIOFormats against what engines take and give: the model's types, in rows."""

from __future__ import annotations

from collections.abc import Sequence

from quantrt.errors import UsageError
from quantrt.ir.tensor_spec import TensorSpec
from quantrt.trtexec.settings import BuildSettings
from quantrt.trtexec.values import IoFormat

__all__ = ["TYPE_NAMES", "check_formats"]

TYPE_NAMES = {
    "float32": "fp32",
    "float16": "fp16",
    "bfloat16": "bf16",
    "int32": "int32",
    "int64": "int64",
    "int8": "int8",
    "uint8": "uint8",
    "bool": "bool",
}
"""numpy's name of an element type -> trtexec's."""

LINEAR = "chw"


def check_formats(
    settings: BuildSettings, inputs: Sequence[TensorSpec], outputs: Sequence[TensorSpec]
) -> None:
    """Fail unless the formats that were asked for are those that the engine has anyway.

    Raises:
        UsageError: another type or format, or not as many as there are inputs or outputs.
    """
    _check("--inputIOFormats", "input", settings.input_formats, inputs)
    _check("--outputIOFormats", "output", settings.output_formats, outputs)


def _check(flag: str, what: str, formats: Sequence[IoFormat], specs: Sequence[TensorSpec]) -> None:
    if not formats:
        return
    if len(formats) not in (1, len(specs)):
        raise UsageError(
            f"{flag} has to name one format, or one for each {what}", got=f"{len(formats)} for {len(specs)}"
        )
    # one for all, or one each
    for spec, found in zip(specs, tuple(formats) * (len(specs) // len(formats)), strict=True):
        own = TYPE_NAMES.get(spec.dtype, spec.dtype)
        if found.dtype not in (None, own):
            raise UsageError(
                f"{what} '{spec.name}' cannot be {found.dtype}: it has the model's type",
                expected=own,
                hint=f"{flag}={own}:{LINEAR}",
            )
        if LINEAR not in found.formats:
            raise UsageError(
                f"{what} '{spec.name}' cannot be {'+'.join(found.formats)}: its values lie in rows",
                expected=LINEAR,
                hint=f"{flag}={own}:{LINEAR}",
            )
