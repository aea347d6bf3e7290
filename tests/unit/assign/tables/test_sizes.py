# SPDX-License-Identifier: Apache-2.0
"""Sizes of assignments, and tables in which regions may have one kind of precision only."""

from dataclasses import replace

import pytest

from quantrt.assign.assignment.as_config import config_of
from quantrt.assign.assignment.assignment import assign, assign_within_size, assign_within_time, uniform
from quantrt.assign.tables.region import find_regions
from quantrt.assign.tables.restrict import regions_named, restrict
from quantrt.assign.tables.sizes import SizeModel, size_model
from quantrt.assign.tables.tables import tables_from_json, tables_to_json
from quantrt.config import BuildConfig, QuantizeConfig
from quantrt.errors import DataError, UsageError
from quantrt.quantize.targets.openvino import OPENVINO
from tests.nets import quantized, resnet, samples
from tests.unit.assign.tables.assign_tables import DAMAGES, NAMES, tables

SIZES = SizeModel({name: {"fp32": 400, "int8": 110} for name in NAMES}, 50)


def sized():
    return tables(sizes=SIZES)


def test_sizes_of_a_network():
    eight = quantized(resnet(), OPENVINO, {"x": samples(8, 3, 16, 16)})
    regions = find_regions(eight.placement)
    found = size_model(eight, regions, float_bytes=20_000, codes_bytes=0)
    first = found.bytes_of["Conv_0"]
    assert first == {"fp32": 8 * 3 * 9 * 4, "int8": 8 * 3 * 9 + 8 * 4}
    floats = dict.fromkeys((region.name for region in regions), "fp32")
    assert found.predict_bytes(floats) == 20_000
    codes = dict.fromkeys(floats, "int8")
    assert found.predict_bytes(codes) < 20_000
    told = size_model(eight, regions, float_bytes=20_000, codes_bytes=19_000)
    assert 19_000 <= told.predict_bytes(codes) < 19_000 + len(regions)
    assert told.predict_bytes(floats) == 20_000
    half = size_model(eight, regions, float_bytes=10_000, codes_bytes=0, float_precision="fp16")
    assert half.bytes_of["Conv_0"]["fp32"] == first["fp32"] // 2
    assert half.predict_bytes(floats) == 10_000


def test_the_least_damage_in_a_size():
    everything = assign_within_size(sized(), 50 + 6 * 400)
    assert everything is not None
    assert not everything.quantized
    some = assign_within_size(sized(), 50 + 4 * 400 + 2 * 110)
    assert some is not None
    assert len(some.quantized) == 2
    assert max(DAMAGES[name] for name in some.quantized) == 1e-4
    assert SIZES.predict_bytes(some.precisions) <= 50 + 4 * 400 + 2 * 110
    assert assign_within_size(sized(), 50 + 6 * 110 - 1) is None
    assert assign_within_size(sized(), 10) is None


def test_tables_without_sizes_say_so():
    with pytest.raises(DataError, match="how large regions are"):
        assign_within_size(tables(), 1000)


def test_sizes_are_kept_in_the_file_and_may_be_absent():
    data = tables_to_json(sized())
    assert tables_from_json(data, "t").sizes == SIZES
    del data["rest_bytes"]
    assert tables_from_json(data, "t").sizes is None
    data = tables_to_json(sized())
    del data["regions"][0]["bytes"]["fp32"]
    with pytest.raises(DataError, match="damaged"):
        tables_from_json(data, "t")


def test_regions_may_have_to_be_float():
    limited = restrict(sized(), ("a",))
    fastest = assign(limited, float("inf"))
    assert fastest is not None
    assert fastest.precisions["a"] == "fp32"
    assert fastest.reasons["a"] == "kept float: it has no other precision"
    slow = assign_within_time(limited, 100.0)
    assert slow is not None
    assert slow.precisions["a"] == "fp32"
    assert limited.damages["b"] == sized().damages["b"]
    assert limited.engines == sized().engines


def test_regions_go_by_the_names_of_their_nodes():
    assert regions_named(tables().regions, ("a/add", "[bc]"), "--exclude") == {"a", "b", "c"}
    with pytest.raises(UsageError, match="--only: no region of the tables has a layer 'x'"):
        regions_named(tables().regions, ("x",), "--only")


def test_the_options_of_a_build():
    model = resnet()
    mine = replace(tables(), fingerprint=model.fingerprint)
    found = assign(mine, 1e-3)
    assert found is not None
    config = config_of(mine, found, BuildConfig(quantize=QuantizeConfig(exclude=("z",))), model)
    floats = {name for name, kind in found.precisions.items() if kind == "fp32"}
    assert floats
    assert set(config.quantize.exclude) == {"z", *floats, *(f"{name}/add" for name in floats)}
    assert config.precisions == {"fp32", "int8"}
    assert config.device.libraries == ("openvino",)
    assert not config.assign.mixed
    with pytest.raises(DataError, match="of another model"):
        config_of(tables(), found, BuildConfig(), model)
    assert uniform(mine, "fp32").keys() == found.precisions.keys()
