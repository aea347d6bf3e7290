# SPDX-License-Identifier: Apache-2.0
"""Options come from the config dataclasses, and what is not given stays at their defaults."""

import argparse
import dataclasses

import pytest

from quantrt.cli.options.options import add_config, flag_of, read_config
from quantrt.config import (
    BenchConfig,
    Budget,
    CalibrationConfig,
    CompareConfig,
    CudaConfig,
    DeviceConfig,
    QuantizeConfig,
)
from quantrt.errors import UsageError

CONFIGS = (BenchConfig, Budget, CalibrationConfig, CompareConfig, CudaConfig, DeviceConfig, QuantizeConfig)


def parsed(config: type, *words: str) -> object:
    parser = argparse.ArgumentParser(allow_abbrev=False)
    add_config(parser, config, "options")
    return read_config(parser.parse_args(words), config)


@pytest.mark.parametrize("config", CONFIGS)
def test_nothing_given_is_the_default(config: type):
    assert parsed(config) == config()


@pytest.mark.parametrize("config", CONFIGS)
def test_every_field_has_an_option_with_help(config: type):
    parser = argparse.ArgumentParser()
    add_config(parser, config, "options")
    text = parser.format_help()
    for field in dataclasses.fields(config):
        assert flag_of(field) in text
        assert field.metadata["help"]


@pytest.mark.parametrize(
    ("config", "field", "flag"),
    [
        (Budget, "max_drop_ratio", "--max-drop"),
        (BenchConfig, "duration_s", "--duration"),
        (CalibrationConfig, "memory_mb", "--memory"),
        (CompareConfig, "min_sqnr_db", "--min-sqnr"),
        (DeviceConfig, "libraries", "--library"),
        (QuantizeConfig, "exclude_types", "--exclude-type"),
        (QuantizeConfig, "exclude", "--exclude"),
        (CudaConfig, "targets", "--target"),
        (CudaConfig, "profiles", "--shapes"),
    ],
)
def test_flags_drop_units_and_plurals(config: type, field: str, flag: str):
    fields = {item.name: item for item in dataclasses.fields(config)}
    assert flag_of(fields[field]) == flag


def test_values_reach_the_fields():
    assert parsed(Budget, "--max-drop", "0.005", "--metric", "cosine") == Budget(
        max_drop_ratio=0.005, metric="cosine"
    )
    assert parsed(DeviceConfig, "--threads", "3") == DeviceConfig(threads=3)
    assert parsed(CalibrationConfig, "--calib-random").calib_random is True


def test_repeatable_options_collect():
    config = parsed(QuantizeConfig, "--exclude", "/a/*", "--exclude", "b")
    assert config == QuantizeConfig(exclude=("/a/*", "b"))


def test_switches_that_are_on_can_be_turned_off():
    assert parsed(QuantizeConfig, "--no-per-channel") == QuantizeConfig(per_channel=False)


def test_an_unknown_choice_names_the_nearest():
    with pytest.raises(UsageError, match="entrop") as caught:
        parsed(CalibrationConfig, "--method", "entrop")
    assert caught.value.hint == "--method entropy"


def test_bounds_are_checked_by_the_dataclass():
    with pytest.raises(UsageError):
        parsed(CalibrationConfig, "--batch-size", "0")


def test_skipped_fields_have_no_option():
    parser = argparse.ArgumentParser()
    add_config(parser, DeviceConfig, "device", skip=("device",))
    assert "--device" not in parser.format_help()


def test_help_shows_the_default():
    parser = argparse.ArgumentParser()
    add_config(parser, Budget, "budget")
    assert f"default: {Budget().max_drop_ratio}" in parser.format_help()


def test_targets_are_joined_by_commas_or_repeated():
    found = parsed(CudaConfig, "--target", "sm_80, sm_90", "--target", "sm_120", "--shapes", "x=1:2:3")
    assert found == CudaConfig(targets=("sm_80", "sm_90", "sm_120"), profiles=("x=1:2:3",))
    with pytest.raises(UsageError, match="unknown target 'sm_75'"):
        parsed(CudaConfig, "--target", "sm_75")
