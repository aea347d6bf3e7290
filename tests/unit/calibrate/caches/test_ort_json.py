# SPDX-License-Identifier: Apache-2.0
"""The JSON that ONNX Runtime's quantizer keeps ranges in, against its own writers."""

from pathlib import Path

import numpy as np
import onnxruntime.quantization.calibrate as calibrate
import pytest

from quantrt.calibrate.caches.ort_json import SYMMETRIC_NOTE
from quantrt.calibrate.caches.trt_cache import parse_cache, read_cache
from quantrt.errors import DataError

RANGES = {"image": (-0.5, 2.0), "/Conv: 1": (-12.5, 3.0), "relu": (0.0, 6.0)}
WANT = {"image": 2.0, "/Conv: 1": 12.5, "relu": 6.0}


def ranges() -> calibrate.TensorsData:
    arrays = {name: tuple(np.array([x], np.float32) for x in pair) for name, pair in RANGES.items()}
    return calibrate.TensorsData(calibrate.CalibrationMethod.MinMax, arrays)


@pytest.mark.skipif(not hasattr(calibrate, "save_tensors_data"), reason="ONNX Runtime before 1.31")
def test_a_cache_of_quantize_static_is_read(tmp_path: Path):
    calibrate.save_tensors_data(ranges(), tmp_path / "c.json")
    cache = read_cache(tmp_path / "c.json")
    assert dict(cache.scales) == {name: float(np.float32(amax / 127)) for name, amax in WANT.items()}
    assert (cache.header, cache.notes) == ("ONNX Runtime calibration cache (JSON)", (SYMMETRIC_NOTE,))


def test_the_json_beside_a_table_is_read(tmp_path: Path):
    pytest.importorskip("flatbuffers", reason="ONNX Runtime writes its tables with it")
    from onnxruntime.quantization.quant_utils import write_calibration_table

    write_calibration_table(ranges().data, dir=str(tmp_path))
    assert dict(read_cache(tmp_path / "calibration.json").scales) == {
        name: float(np.float32(amax / 127)) for name, amax in WANT.items()
    }


def test_ranges_of_channels_count_by_the_widest():
    data = b'{"w": {"lowest": {"data": [-3.0, -1.0]}, "highest": {"data": [1.0, 2.0]}}}'
    assert parse_cache(data, "c.json").scales["w"] == float(np.float32(3 / 127))


@pytest.mark.parametrize(
    ("data", "got"),
    [
        (b"{", "Expecting property name"),
        (b'{"version": 1, "regions": []}', "keys version, regions"),
        (b'{"CLS": "TensorsData"}', "keys CLS"),
        (b'{"x": {"lowest": 0}}', "'x' without lowest and highest values"),
        (b'{"x": {"avg": 0, "std": 1}}', "'x' without lowest and highest values"),
    ],
)
def test_what_is_no_such_cache(data: bytes, got: str):
    with pytest.raises(DataError, match="no calibration cache of ONNX Runtime") as caught:
        parse_cache(data, "c.json")
    assert caught.value.got.startswith(got)
