# SPDX-License-Identifier: Apache-2.0
import json
import math
from dataclasses import replace
from pathlib import Path

import pytest

from quantrt.assign.tables.noise_limit import NoisePoint
from quantrt.assign.tables.tables import read_tables, tables_from_json, tables_to_json, write_tables
from quantrt.errors import DataError
from tests.unit.assign.tables.assign_tables import DAMAGES, tables


def test_a_file_gives_back_what_was_written(tmp_path: Path):
    path = tmp_path / "model.tables.json"
    broken = tables(damages={**DAMAGES, "b": math.inf})
    for made in (tables(codes="7c" * 32), broken, tables(costs=None), tables(damages={})):
        write_tables(made, path)
        found = read_tables(path)
        assert replace(found, costs=None) == replace(made, costs=None)
        if made.costs is not None:
            assert found.costs == made.costs


def test_engines_are_points_where_noise_and_drop_are_known():
    assert tables().points == (NoisePoint(0.0, 0.0), NoisePoint(pytest.approx(sum(DAMAGES.values())), 0.2))
    assert len(tables(damages={}).points) == 1


def test_damages_fit_the_same_model_and_regions_only():
    made = tables()
    assert made.fits(tables(damages={}))
    assert not made.fits(replace(made, samples=8))
    assert not made.fits(replace(made, regions=made.regions[1:]))
    assert not made.fits(replace(made, library="onnxruntime"))
    assert not made.fits(replace(made, codes="7c" * 32))


def change(data: dict, key: str, value: object) -> dict:
    return {**data, key: value}


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("kind", "engine", "holds no assignment tables"),
        ("version", 99, "cannot read the tables"),
        ("regions", [{"name": "a"}], "damaged"),
        ("crossings", [["a", "zz", 5]], "damaged"),
        ("engines", [{"precisions": ["int8"], "latency_ms": 1.0}], "damaged"),
        ("model", "x", "damaged"),
    ],
)
def test_bad_data_is_named(key: str, value: object, message: str):
    with pytest.raises(DataError, match=message):
        tables_from_json(change(tables_to_json(tables()), key, value), "x.json")


@pytest.mark.parametrize(
    ("place", "key", "value", "message"),
    [
        ("regions", "damage", ["int8"], "damaged"),
        ("regions", "time_ms", {"int8": 0.4}, "'a' has no time in fp32"),
        ("regions", "time_ms", {"fp32": math.nan, "int8": 0.4}, "'a' has no time in fp32"),
        ("engines", "precisions", ["fp8", *["fp32"] * 5], "'a' has no time in fp8"),
    ],
)
def test_a_bad_row_is_an_error_when_it_is_read(place: str, key: str, value: object, message: str):
    data = tables_to_json(tables())
    data[place][0][key] = value
    with pytest.raises(DataError) as caught:
        tables_from_json(data, "x.json")
    assert message in f"{caught.value.message} {caught.value.got}"


def test_a_truncated_file_and_a_missing_one(tmp_path: Path):
    path = tmp_path / "t.json"
    path.write_text(json.dumps(tables_to_json(tables()))[:200])
    with pytest.raises(DataError, match="no JSON"):
        read_tables(path)
    path.write_text("[" * 100_000)
    with pytest.raises(DataError, match="no JSON"):
        read_tables(path)
    with pytest.raises(DataError, match="cannot read"):
        read_tables(tmp_path / "none.json")
