# SPDX-License-Identifier: Apache-2.0
"""Recipes: TOML files that say how a model is quantized, checked to the last key.

    version = 1
    description = "one sentence"
    precision = "int8"              # what `build` tries beside floats: int8 or fp8
    device = "cpu"                  # optional, for `build`
    libraries = ["onnxruntime"]     # optional, for `build` on a CPU
    target = "ort"                  # optional, for `quantize`

    [calibration]                   # fields of quantrt.config.CalibrationConfig
    method = "auto"

    [quantize]                      # fields of quantrt.config.QuantizeConfig
    smoothing = "folded"

What a caller gives beside a recipe counts before it. The recipes that come with QuantRT are files in
`quantrt/recipes`, called by their names.
"""

from __future__ import annotations

import dataclasses
import tomllib
import types
import typing
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from quantrt.config import DEVICES, LIBRARIES, TARGETS, CalibrationConfig, QuantizeConfig
from quantrt.dtypes import CODE_PRECISIONS
from quantrt.errors import DataError, UsageError, close_match

__all__ = ["RECIPE_VERSION", "Recipe", "load_recipe", "recipe_names", "recipe_path"]

RECIPE_VERSION = 1

FOLDER = Path(__file__).parent / "recipes"
SUFFIX = ".toml"

EXAMPLE = f"`cat '{FOLDER / 'default.toml'}'`, which is an example"

SECTIONS: Mapping[str, type[Any]] = {"calibration": CalibrationConfig, "quantize": QuantizeConfig}
"""Tables of a recipe, with the options that they may set."""

CHOICES = {"precision": CODE_PRECISIONS, "device": DEVICES, "target": TARGETS}
"""Keys at the top with the values they take."""

NOT_OF_A_RECIPE = ("calib_random", "max_samples")
"""Options that are of the data of one run."""


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """How to quantize.

    Attributes:
        name: of the recipe, or the path of its file.
        description: one sentence.
        precision: "int8" or "fp8".
        device: what `build` builds for; None leaves it open.
        libraries: those that `build` tries on a CPU; none leaves it open.
        target: whose placement `quantize` follows; None leaves it open.
        calibration, quantize: options by the names of their fields, only those that the recipe sets.
    """

    name: str
    description: str
    precision: str = "int8"
    device: str | None = None
    libraries: tuple[str, ...] = ()
    target: str | None = None
    calibration: Mapping[str, Any] = field(default_factory=dict)
    quantize: Mapping[str, Any] = field(default_factory=dict)

    def calibration_config(self, **given: Any) -> CalibrationConfig:
        """The options of calibration; what is given counts before the recipe."""
        return CalibrationConfig(**{**self.calibration, **given})

    def quantize_config(self, **given: Any) -> QuantizeConfig:
        """The options of quantization; what is given counts before the recipe."""
        return QuantizeConfig(**{**self.quantize, **given})


def recipe_names() -> tuple[str, ...]:
    """The recipes that come with QuantRT."""
    return tuple(sorted(path.stem for path in FOLDER.glob(f"*{SUFFIX}")))


def load_recipe(name: str | Path) -> Recipe:
    """A recipe that comes with QuantRT, or one in a file that ends in .toml.

    Raises:
        UsageError: there is no such recipe, or it sets what does not exist; names the nearest.
        DataError: the file is no TOML, or of another version.
    """
    return _checked(str(name), _read(recipe_path(name)))


def recipe_path(name: str | Path) -> Path:
    """The file of a recipe.

    Raises:
        UsageError: there is none.
    """
    path = Path(name)
    if path.suffix != SUFFIX:
        path = FOLDER / f"{name}{SUFFIX}"
        if str(name) not in recipe_names():
            near = close_match(str(name), recipe_names())
            raise UsageError(
                f"there is no recipe '{name}'",
                expected=f"one of {', '.join(recipe_names())}, or a file that ends in {SUFFIX}",
                hint=f"'{near}'" if near else EXAMPLE,
            )
    if not path.is_file():
        raise UsageError(f"there is no file '{path}'", expected="a recipe", hint=EXAMPLE)
    return path


def _read(path: Path) -> dict[str, Any]:
    try:
        data = tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, OSError) as error:
        raise DataError(
            f"cannot read the recipe '{path}'", got=str(error), expected="TOML", hint=EXAMPLE
        ) from error
    if data.get("version") != RECIPE_VERSION:
        raise DataError(
            f"cannot use the recipe '{path}'",
            got=f"version {data['version']}" if "version" in data else "no version",
            expected=f"version = {RECIPE_VERSION}",
            hint=EXAMPLE,
        )
    return data


def _checked(name: str, data: Mapping[str, Any]) -> Recipe:
    """The recipe of what its file says, every key and value of it known."""
    known = {"version", "description", "libraries", *CHOICES, *SECTIONS}
    for key in data:
        if key not in known:
            raise _unknown(name, key, known)
    top: dict[str, Any] = {
        key: _choice(name, key, data[key], choices) for key, choices in CHOICES.items() if key in data
    }
    libraries = data.get("libraries", [])
    if not isinstance(libraries, list):
        raise _wrong(name, "libraries", libraries, "a list of names")
    description = data.get("description", "")
    if not isinstance(description, str):
        raise _wrong(name, "description", description, "text")
    recipe = Recipe(
        name=name,
        description=description,
        libraries=tuple(_choice(name, "libraries", item, LIBRARIES) for item in libraries),
        calibration=_options(name, "calibration", data.get("calibration", {})),
        quantize=_options(name, "quantize", data.get("quantize", {})),
        **top,
    )
    try:
        recipe.calibration_config(), recipe.quantize_config()
    except UsageError as error:
        raise UsageError(
            f"recipe '{name}': {error.message}",
            got=error.got,
            expected=error.expected,
            hint=error.hint or EXAMPLE,
        ) from error
    return recipe


def _options(name: str, section: str, values: Any) -> dict[str, Any]:
    """The options of one table, with lists as tuples."""
    if not isinstance(values, dict):
        raise _wrong(name, section, values, "a table")
    hints = typing.get_type_hints(SECTIONS[section])
    known = [row.name for row in dataclasses.fields(SECTIONS[section]) if row.name not in NOT_OF_A_RECIPE]
    found = {}
    for key, value in values.items():
        if key not in known:
            raise _unknown(name, f"{section}.{key}", [f"{section}.{item}" for item in known])
        found[key] = _typed(name, f"{section}.{key}", value, hints[key])
    return found


def _typed(name: str, key: str, value: Any, hint: Any) -> Any:
    """A value of TOML as an option of this type."""
    if isinstance(hint, types.UnionType):
        hint = next(part for part in typing.get_args(hint) if part is not type(None))
    if typing.get_origin(hint) is tuple:
        if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
            raise _wrong(name, key, value, "a list of texts")
        return tuple(value)
    if hint is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if type(value) is not hint:
        expected = {bool: "true or false", int: "a whole number", float: "a number", str: "text"}
        raise _wrong(name, key, value, expected[hint])
    return value


def _choice(name: str, key: str, value: Any, choices: tuple[str, ...]) -> str:
    if value not in choices:
        near = close_match(str(value), choices)
        raise UsageError(
            f"recipe '{name}': unknown {key} '{value}'",
            expected="one of " + ", ".join(choices),
            hint=f"'{near}'" if near else EXAMPLE,
        )
    return str(value)


def _unknown(name: str, key: str, known: typing.Iterable[str]) -> UsageError:
    near = close_match(key, known)
    return UsageError(
        f"recipe '{name}': there is no '{key}'",
        expected="one of " + ", ".join(sorted(known)),
        hint=f"'{near}'" if near else EXAMPLE,
    )


def _wrong(name: str, key: str, value: Any, expected: str) -> UsageError:
    return UsageError(
        f"recipe '{name}': cannot use this '{key}'", got=repr(value), expected=expected, hint=EXAMPLE
    )
