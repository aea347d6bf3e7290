# SPDX-License-Identifier: Apache-2.0
"""Recipes: every key is known or named, and those that come with QuantRT say what they are."""

from dataclasses import fields
from pathlib import Path

import pytest

from quantrt.config import CalibrationConfig, QuantizeConfig
from quantrt.errors import DataError, UsageError
from quantrt.recipe import load_recipe, recipe_names, recipe_path

NAMES = ("accurate", "default", "fast", "fp8", "openvino", "tensorrt")


def test_these_come_with_it():
    assert set(NAMES) <= set(recipe_names())


@pytest.mark.parametrize("name", recipe_names())
def test_a_recipe_that_comes_with_it_is_valid_and_described(name: str):
    recipe = load_recipe(name)
    assert recipe.name == name and recipe.description
    text = recipe_path(name).read_text(encoding="utf-8")
    assert load_recipe(recipe_path(name)).quantize == recipe.quantize, "by its file, too"
    assert text.endswith("\n")


def test_the_default_recipe_is_the_defaults():
    recipe = load_recipe("default")
    assert recipe.calibration_config() == CalibrationConfig()
    assert recipe.quantize_config() == QuantizeConfig()
    assert recipe.quantize, "spelled out"


def test_what_is_given_counts_before_the_recipe():
    recipe = load_recipe("accurate")
    assert recipe.quantize_config().smoothing == "multiplied"
    assert recipe.quantize_config(smoothing="off").smoothing == "off"


def test_lists_and_numbers_are_options(tmp_path: Path):
    path = write(
        tmp_path,
        'version = 1\nlibraries = ["onnxruntime"]\n[calibration]\nmethod = "percentile"\npercentile = 99\n'
        '[quantize]\nexclude = ["/head/*"]\n',
    )
    recipe = load_recipe(path)
    assert recipe.calibration_config().percentile == 99.0
    assert recipe.quantize_config().exclude == ("/head/*",)
    assert recipe.libraries == ("onnxruntime",)


BAD = {
    "quantise = {}": ("there is no 'quantise'", "'quantize'"),
    "[quantize]\nsmoothin = true": ("there is no 'quantize.smoothin'", "'quantize.smoothing'"),
    '[quantize]\nsmoothing = "folds"': ("unknown smoothing 'folds'", "'folded'"),
    '[quantize]\nper_channel = "yes"': ("quantize.per_channel", None),
    "[quantize]\nexclude = [1]": ("quantize.exclude", None),
    "[calibration]\nbatch_size = true": ("calibration.batch_size", None),
    "[calibration]\nbatch_size = 0": ("batch size", None),
    "[calibration]\ncalib_random = true": ("calibration.calib_random", None),
    "quantize = 3": ("cannot use this 'quantize'", None),
    'libraries = "openvino"': ("cannot use this 'libraries'", None),
    'libraries = ["openvno"]': ("unknown libraries 'openvno'", "'openvino'"),
    'target = "tensort"': ("unknown target 'tensort'", "'tensorrt'"),
    'precision = "int7"': ("unknown precision 'int7'", "'int8'"),
    "description = 3": ("cannot use this 'description'", None),
}


@pytest.mark.parametrize("text", BAD)
def test_what_is_wrong_is_named_with_the_nearest(text: str, tmp_path: Path):
    message, hint = BAD[text]
    with pytest.raises(UsageError) as caught:
        load_recipe(write(tmp_path, f"version = 1\n{text}\n"))
    assert "mine.toml" in caught.value.message and message in caught.value.message
    assert hint is None or caught.value.hint == hint


@pytest.mark.parametrize("text", ["", "version = 2", "version = ", "\x00"])
def test_no_recipe_of_this_version(text: str, tmp_path: Path):
    with pytest.raises(DataError, match=r"mine\.toml"):
        load_recipe(write(tmp_path, text))


def test_there_is_no_such_recipe(tmp_path: Path):
    with pytest.raises(UsageError) as caught:
        load_recipe("acurate")
    assert caught.value.hint == "'accurate'"
    with pytest.raises(UsageError, match="there is no file") as caught:
        load_recipe(tmp_path / "none.toml")
    assert caught.value.hint == f"`cat '{recipe_path('default')}'`, which is an example"


def test_every_option_of_quantization_may_stand_in_a_recipe(tmp_path: Path):
    for row in fields(QuantizeConfig):
        if row.default is None:
            continue
        value = list(row.default) if isinstance(row.default, tuple) else row.default
        text = (
            str(value).lower()
            if isinstance(value, bool)
            else f'"{value}"'
            if isinstance(value, str)
            else value
        )
        recipe = load_recipe(write(tmp_path, f"version = 1\n[quantize]\n{row.name} = {text}\n"))
        assert recipe.quantize == {row.name: row.default}


def write(folder: Path, text: str) -> Path:
    path = folder / "mine.toml"
    path.write_text(text, encoding="utf-8")
    return path
