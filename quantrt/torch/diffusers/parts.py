# SPDX-License-Identifier: Apache-2.0
"""The modules of a diffusion pipeline that may become engines, by the names that its users know."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch import nn

from quantrt.errors import UsageError, close_match

__all__ = ["DENOISERS", "Part", "find_parts", "timed_parts"]

DENOISERS = ("unet", "transformer")
"""Attributes of a pipeline that hold what is called in every step."""

PATHS = {
    **{name: name for name in ("text_encoder", "text_encoder_2", "text_encoder_3", *DENOISERS)},
    "vae_decoder": "vae.decoder",
}
"""Attributes, from the pipeline on, in the order in which they run."""


@dataclass(frozen=True)
class Part:
    """One module of a pipeline.

    Attributes:
        name: as in `modules=`.
        owner: the object that has it.
        attribute: its name there.
    """

    name: str
    owner: Any
    attribute: str

    @property
    def module(self) -> nn.Module:
        """What is there now."""
        found: nn.Module = getattr(self.owner, self.attribute)
        return found

    def replace(self, module: nn.Module) -> None:
        """Put another module in its place."""
        setattr(self.owner, self.attribute, module)


def find_parts(pipe: Any, names: tuple[str, ...] | None) -> tuple[Part, ...]:
    """The parts called `names`; by default the denoiser alone.

    Raises:
        UsageError: the pipeline has none that is called so; names the nearest.
    """
    known = {part.name: part for part in timed_parts(pipe)}
    if names is None:
        names = tuple(name for name in DENOISERS if name in known)
        if not names:
            raise UsageError(
                f"cannot find what {type(pipe).__name__} denoises with",
                expected="a module 'unet' or 'transformer'",
            )
    for name in names:
        if name not in known:
            near = close_match(name, known)
            raise UsageError(
                f"{type(pipe).__name__} has no module '{name}'",
                expected="one of " + ", ".join(known),
                hint=f"'{near}'" if near else None,
            )
    return tuple(known[name] for name in dict.fromkeys(names))


def timed_parts(pipe: Any) -> tuple[Part, ...]:
    """Every part that the pipeline has, in the order in which they run."""
    found: list[Part] = []
    for name, path in PATHS.items():
        *owners, attribute = path.split(".")
        owner = pipe
        for step in owners:
            owner = getattr(owner, step, None)
        if isinstance(getattr(owner, attribute, None), nn.Module):
            found.append(Part(name, owner, attribute))
    return tuple(found)
