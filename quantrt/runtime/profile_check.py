# SPDX-License-Identifier: Apache-2.0
"""Shapes of a run, against the profiles that the engine was built for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from quantrt.errors import DataError, ModelError
from quantrt.ir.profile import Profile, profiles_from_rows
from quantrt.plan.plan import LibraryModel
from quantrt.plan.program_json import LIBRARY, program_from_model

__all__ = ["PROFILES", "ProfileCheck", "profiles_of"]

PROFILES = "profiles"
"""The entry of Program.notes that holds them."""

REMEMBERED_SHAPES = 256
"""Combinations whose check is not repeated; all are forgotten when there are more."""


def profiles_of(model: LibraryModel) -> tuple[Profile, ...]:
    """The profiles that an engine for a GPU was built for; none for other libraries."""
    if model.library != LIBRARY:
        return ()
    return profiles_from_rows(program_from_model(model).notes.get(PROFILES, []))


class ProfileCheck:
    """Refuses what no profile admits; without profiles, nothing.

    Args:
        notes: those of the program.

    Raises:
        ModelError: they hold something else than profiles.
    """

    def __init__(self, notes: Mapping[str, Any]) -> None:
        try:
            self._profiles: tuple[Profile, ...] = profiles_from_rows(notes.get(PROFILES, []))
        except (TypeError, ValueError, AttributeError) as error:
            raise ModelError(
                "cannot use the program of this engine: its profiles cannot be read", got=str(error)
            ) from error
        self._admitted: set[tuple[tuple[int, ...], ...]] = set()

    def check(self, inputs: Mapping[str, Any]) -> None:
        """Fail unless one profile admits the shapes of all inputs.

        Args:
            inputs: arrays or tensors by name.

        Raises:
            DataError: names the first input that no profile admits, or all where only together none does.
        """
        if not self._profiles:
            return
        key = tuple(tuple(inputs[name].shape) for name in self._profiles[0].ranges)
        if key in self._admitted:
            return
        shapes = dict(zip(self._profiles[0].ranges, key, strict=True))
        if not any(profile.admits(shapes) for profile in self._profiles):
            raise self._refusal(shapes)
        if len(self._admitted) >= REMEMBERED_SHAPES:
            self._admitted = set()
        self._admitted.add(key)

    def _refusal(self, shapes: Mapping[str, tuple[int, ...]]) -> DataError:
        lonely = [
            name
            for name, shape in shapes.items()
            if not any(profile.ranges[name].admits(shape) for profile in self._profiles)
        ]
        names = lonely[:1] or list(shapes)
        which = f"input '{names[0]}'" if len(names) == 1 else "the inputs together"
        return DataError(
            f"cannot run {which}: outside the shapes that the engine was built for",
            got=", ".join(f"{name} {list(shapes[name])}" for name in names),
            expected=" or ".join(
                ", ".join(f"{name} {profile.ranges[name]}" for name in names) for profile in self._profiles
            )
            + " (min:opt:max)",
            hint="building it again with --shapes that include these",
        )
