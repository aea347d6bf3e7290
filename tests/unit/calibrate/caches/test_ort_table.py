# SPDX-License-Identifier: Apache-2.0
"""ONNX Runtime's calibration tables, against its own writer and its own reader."""

from pathlib import Path

import numpy as np
import pytest

from quantrt.calibrate.caches.ort_table import read_table, read_text_table, table_bytes
from quantrt.calibrate.caches.trt_cache import TrtCache, read_cache, write_cache
from quantrt.errors import DataError

AMAX = {"images": 2.64, "/Conv: 1": 12.5, "ü (Unnamed Layer* 3)": 1e-3, "x": 7.0, "yz": 1.0}


@pytest.fixture
def by_onnxruntime(tmp_path: Path) -> Path:
    """A folder with what ONNX Runtime writes of these ranges."""
    pytest.importorskip("flatbuffers", reason="ONNX Runtime writes its tables with it")
    from onnxruntime.quantization.calibrate import CalibrationMethod, TensorsData
    from onnxruntime.quantization.quant_utils import write_calibration_table

    ranges = {
        name: (np.array(-amax / 2, np.float32), np.array(amax, np.float32)) for name, amax in AMAX.items()
    }
    write_calibration_table(TensorsData(CalibrationMethod.MinMax, ranges).data, dir=str(tmp_path))
    return tmp_path


def test_tables_of_onnxruntime_are_read(by_onnxruntime: Path):
    want = {name: float(np.float32(amax) / np.float32(127)) for name, amax in AMAX.items()}
    for name in ("calibration.flatbuffers", "calibration.cache"):
        cache = read_cache(by_onnxruntime / name)
        assert dict(cache.scales) == want
        assert cache.algorithm is None
        assert "ONNX Runtime" in cache.header


def test_a_table_that_is_written_is_read_by_onnxruntime(tmp_path: Path):
    pytest.importorskip("flatbuffers", reason="ONNX Runtime reads its tables with it")
    from onnxruntime.quantization.CalTableFlatBuffers.TrtTable import TrtTable

    scales = {name: float(np.float32(amax / 127)) for name, amax in AMAX.items()}
    write_cache(TrtCache("x", "TRT-8601-EntropyCalibration2", scales), tmp_path / "x.flatbuffers")
    table = TrtTable.GetRootAsTrtTable((tmp_path / "x.flatbuffers").read_bytes(), 0)
    pairs = [(table.Dict(i).Key().decode(), table.Dict(i).Value()) for i in range(table.DictLength())]
    assert [name for name, _ in pairs] == sorted(scales, key=str.encode)
    for name, text in pairs:
        scale = np.float32(float(text)) / np.float32(127)
        assert abs(scale - np.float32(scales[name])) <= np.spacing(np.float32(scales[name]))


def test_a_real_table_says_the_same_as_text_and_as_flatbuffers(shared_data):
    text, table = (
        read_cache(shared_data(f"trt_caches/ort_crestereo_calibration.{suffix}"))
        for suffix in ("cache", "flatbuffers")
    )
    assert dict(text.scales) == dict(table.scales)
    assert len(table.scales) == 4520


def test_a_table_that_is_cut_off_anywhere_is_an_error():
    data = table_bytes(AMAX)
    assert read_table(data, "x") == AMAX
    whole = data.rstrip(b"\0")
    for size in range(len(whole)):
        with pytest.raises(DataError, match="damaged"):
            read_table(data[:size], "x")


def test_no_damage_does_more_than_an_error(rng: np.random.Generator):
    data = table_bytes(AMAX)
    outcomes = set()
    for _ in range(2000):
        changed = bytearray(data)
        changed[int(rng.integers(len(data)))] = int(rng.integers(256))
        try:
            outcomes.add(len(read_table(bytes(changed), "x")))
        except DataError:
            outcomes.add(-1)
    assert -1 in outcomes and len(AMAX) in outcomes


def test_counts_are_checked_before_they_are_used():
    data = bytearray(table_bytes(AMAX))
    place = data.index(len(AMAX).to_bytes(4, "little"), 16)
    data[place : place + 4] = b"\xff\xff\xff\x7f"
    with pytest.raises(DataError) as caught:
        read_table(bytes(data), "x")
    assert "2147483647 entries do not fit" in (caught.value.got or "")


def with_key_twice(second: float) -> bytes:
    """A table whose entry "yz" was made a second "aa"."""
    data = table_bytes({"aa": 2.0, "yz": second})
    return data.replace(b"yz", b"aa")


def test_a_tensor_with_two_ranges_is_an_error_that_names_both():
    with pytest.raises(DataError) as caught:
        read_table(with_key_twice(3.0), "x")
    assert "entry 1 gives 'aa' 3, one before it 2" in (caught.value.got or "")
    assert read_table(with_key_twice(2.0), "x") == {"aa": 2.0}
    with pytest.raises(DataError, match="line 2 gives 'a' a second range") as caught:
        read_text_table([(1, "a 2.0"), (2, "a 3.0")], "x")
    assert caught.value.got == "2 and 3"


def test_a_range_that_is_not_a_number_is_not_another_one():
    (found,) = read_text_table([(1, "a nan"), (2, "a nan")], "x").values()
    assert np.isnan(found)
    assert np.isnan(read_table(with_key_twice(2.0).replace(b"2.0", b"nan"), "x")["aa"])
