# SPDX-License-Identifier: Apache-2.0
"""Calibration caches: every form that is found, every scale that is wrong, every line that is none."""

import csv
import struct
from pathlib import Path

import numpy as np
import pytest

from quantrt.calibrate.caches import trt_cache
from quantrt.calibrate.caches.origin import Origin, origin_path, scales_hash
from quantrt.calibrate.caches.trt_cache import (
    DEFAULT_HEADER,
    SYMMETRIC_MAX,
    TrtCache,
    cache_text,
    check_header,
    parse_cache,
    read_cache,
    why_invalid,
    write_cache,
)
from quantrt.errors import DataError
from quantrt.model.model import Fingerprint

HEADER = "TRT-8601-EntropyCalibration2"
SCALES = {"images": 0.5, "/layer1/conv1/Conv_output_0": float(np.float32(0.1))}


def bits(scale: float) -> str:
    return struct.pack(">f", scale).hex()


def parse(text: str | bytes) -> TrtCache:
    return parse_cache(text.encode() if isinstance(text, str) else text, "x.cache")


def origin(scales: dict[str, float]) -> Origin:
    return Origin(Fingerprint("g" * 64, "w" * 64), 7, "d" * 64, False, "entropy", scales_hash(scales))


@pytest.mark.parametrize(
    ("header", "version", "algorithm"),
    [
        ("TRT-7000-EntropyCalibration", "7.0.0", "EntropyCalibration"),
        ("TRT-7203-EntropyCalibration2", "7.2.3", "EntropyCalibration2"),
        ("TRT-8602-MinMaxCalibration", "8.6.2", "MinMaxCalibration"),
        ("TRT-100300-MinMaxCalibration", "10.3.0", "MinMaxCalibration"),
        ("TRT-101601-LegacyCalibration", "10.16.1", "LegacyCalibration"),
        ("TRT-8601-SomethingNew_3", "8.6.1", "SomethingNew_3"),
    ],
)
def test_any_version_and_calibrator_is_read(header: str, version: str, algorithm: str):
    cache = parse(f"{header}\nx: 3f000000\n")
    assert (cache.header, cache.version, cache.algorithm) == (header, version, algorithm)
    assert dict(cache.scales) == {"x": 0.5}
    ran_fused = algorithm in ("EntropyCalibration", "LegacyCalibration")
    assert any("fused" in note for note in cache.notes) is ran_fused


@pytest.mark.parametrize(
    "name",
    ["x", "onnx::Conv_329", "a: b", "(Unnamed Layer* 4) [Fully Connected]_output", "168", "größe", "TRT-1-x"],
)
def test_names_hold_whatever_they_like(name: str):
    assert dict(parse(f"{HEADER}\n{name}: 3f000000\nlast: 3f800000\n").scales) == {name: 0.5, "last": 1.0}


@pytest.mark.parametrize(
    "text",
    [
        f"{HEADER}\r\nx: 3f000000\r\ny: 3f800000\r\n",
        f"{HEADER}  \nx: 3f000000 \t\n\n  \ny: 3f800000   \n\n",
        f"\n{HEADER}\nx: 3f000000\ny: 3f800000",
        f"{HEADER}\nx: 3F000000\ny:3f800000\n",
        f"\ufeff{HEADER}\nx: 3f000000\ny: 3f800000\n",
        f"{HEADER}\nx: 3f000000\nx: 3f000000\ny: 3f800000\n",
    ],
    ids=["crlf", "blanks", "no-end-of-line", "upper-case", "byte-order-mark", "twice-the-same"],
)
def test_what_editors_do_to_a_cache_does_not_matter(text: str):
    assert dict(parse(text).scales) == {"x": 0.5, "y": 1.0}


def test_digits_may_be_left_out_where_they_are_zeros():
    scale = struct.unpack(">f", bytes.fromhex("00a00000"))[0]
    assert dict(parse(f"{HEADER}\nx: a00000\n").scales) == {"x": scale}


@pytest.mark.parametrize(
    ("digits", "reason"),
    [
        ("7f800000", "infinite"),
        ("ff800000", "infinite"),
        ("7fc00000", "not a number"),
        ("00000000", "zero"),
        ("80000000", "zero"),
        ("0", "zero"),
        ("bf800000", "negative"),
        ("00000001", "too small"),
        ("7f7fffff", "beyond float32"),
    ],
)
def test_scales_that_cannot_be_used_are_set_apart(digits: str, reason: str):
    cache = parse(f"{HEADER}\nbad: {digits}\ngood: 3f800000\n")
    assert dict(cache.scales) == {"good": 1.0}
    assert list(cache.invalid) == ["bad"]
    assert reason in cache.invalid["bad"]


def test_the_largest_usable_scale_has_a_finite_range():
    largest = np.nextafter(np.float32(np.finfo(np.float32).max / SYMMETRIC_MAX), np.float32(0))
    assert why_invalid(largest) is None
    assert np.isfinite(largest * np.float32(SYMMETRIC_MAX))


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"", "empty"),
        (b" \n \n", "empty"),
        (b"\x1f\n\x1c", "empty"),
        (b"TRT-8601-EntropyCalibration2\n", "no tensor"),
        (b"TRT-8601-EntropyCalibration2\nx: 3f000000\nwhat is this\n", "line 3"),
        (b"TRT-8601-EntropyCalibration2\nx: 3f00000g\n", "line 2"),
        (b"TRT-8601-EntropyCalibration2\nx: 3f0000000\n", "line 2"),
        (b"TRT-8601-EntropyCalibration2\nx:\n", "line 2"),
        (b"TRT-8601-EntropyCalibration2\n: 3f000000\n", "line 2"),
        (b"TRT-8601-EntropyCalibration2\nx: 0x3f000000\n", "line 2"),
        (b"TRT-8601-EntropyCalibration2\nx: 0.5\n", "line 2"),
        (b"TRT-8601-EntropyCalibration2\nx: 3f000000\n\ny: 3f0", "line 4"),
        (b"TRT-8601-EntropyCalibration2\nx\x07: 3f000000\n", "line 2"),
        (b"TRT-8601-EntropyCalibration2\n\xff: 3f000000\n", "line 2"),
        (b"TRT-8601\nx: 3f000000\n", "line 1"),
        (b"TRT-x-EntropyCalibration2\nx: 3f000000\n", "line 1"),
        (b"x: 3f000000\ny: 3f000000\n", "line 1 should say which calibrator"),
        ("TRT-8601-EntropyCalibration2\nx: 3f000000\n".encode("utf-16"), "UTF-16"),
        (b"PK\x03\x04\x00\x00\x00\x00 a zip", "no calibration cache, or damaged"),
        (b"\x08\x07\x12\x07pytorch\x00\x00\x00\x00", "no calibration cache, or damaged"),
        (b'{"x": [0, 1]}', "no calibration cache"),
    ],
)
def test_what_is_no_cache_is_said_with_its_line(data: bytes, said: str):
    with pytest.raises(DataError) as caught:
        parse(data)
    assert said in caught.value.message
    assert "'x.cache'" in caught.value.message


def test_no_damage_does_more_than_an_error(rng: np.random.Generator):
    whole = cache_text({f"/layer{i}/Conv: {i}": 0.5 + i for i in range(9)}).encode()
    outcomes = set()
    for _ in range(3000):
        data = bytearray(whole)
        place, size = int(rng.integers(len(data))), int(rng.integers(1, 12))
        data[place : place + size] = rng.integers(0, 256, int(rng.integers(4)), np.uint8).tobytes()
        try:
            cache = parse(bytes(data))
        except DataError:
            outcomes.add("error")
            continue
        outcomes.add("read")
        assert all(0 < scale < np.inf for scale in cache.scales.values())
    assert outcomes == {"error", "read"}


def test_noise_is_no_cache(rng: np.random.Generator):
    for _ in range(2000):
        with pytest.raises(DataError):
            parse(rng.integers(0, 256, int(rng.integers(60)), np.uint8).tobytes())


def test_two_scales_of_one_tensor_are_an_error_that_names_both():
    with pytest.raises(DataError, match="line 4 gives 'x'") as caught:
        parse(f"{HEADER}\nx: 3f000000\ny: 3f000000\nx: 3f800000\n")
    assert caught.value.got == "0.5 and 1"


def test_a_file_that_is_missing_or_far_too_large(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    with pytest.raises(DataError, match="no such file") as caught:
        read_cache(tmp_path / "x.cache")
    assert "quantrt calibrate" in (caught.value.hint or "")
    with pytest.raises(DataError, match="cannot read"):
        read_cache(tmp_path)
    path = tmp_path / "y.cache"
    path.write_text(cache_text(SCALES))
    monkeypatch.setattr(trt_cache, "MAX_CACHE_BYTES", 10)
    with pytest.raises(DataError, match="too large"):
        read_cache(path)


def test_what_is_written_is_read(rng: np.random.Generator, tmp_path: Path):
    scales = {
        f"tensor {i}": float(scale) for i, scale in enumerate(np.exp(rng.normal(size=99)).astype(np.float32))
    }
    for suffix in (".cache", ".flatbuffers"):
        path = tmp_path / f"x{suffix}"
        write_cache(TrtCache("x", "TRT-100300-MinMaxCalibration", scales, origin=origin(scales)), path)
        cache = read_cache(path)
        assert dict(cache.scales) == scales, "bit for bit"
        assert cache.origin == origin(scales)
        assert sorted(file.name for file in tmp_path.glob(f"x{suffix}*")) == [path.name, f"{path.name}.json"]
    assert read_cache(tmp_path / "x.cache").header == "TRT-100300-MinMaxCalibration"


def test_the_text_is_that_of_tensorrt():
    text = "TRT-8601-EntropyCalibration2\nimages: 3f000000\n/layer1/conv1/Conv_output_0: 3dcccccd\n"
    assert cache_text(SCALES) == text


@pytest.mark.parametrize("scale", [0.0, -1.0, float("nan"), float("inf")])
def test_what_cannot_be_read_is_not_written(scale: float):
    with pytest.raises(DataError, match="scale of 'x'"):
        cache_text({"x": scale})


@pytest.mark.parametrize("name", ["", " ", "a\nb", "a\r", "a\u2028b"])
def test_names_that_no_line_can_hold_are_not_written(name: str):
    with pytest.raises(DataError, match="cannot write the scale"):
        cache_text({name: 1.0})


@pytest.mark.parametrize(
    "header", ["", "TRT-8601", "EntropyCalibration2", f"{HEADER}\nx: 3f800000", f"{HEADER} "]
)
def test_a_header_has_its_form(header: str):
    with pytest.raises(DataError, match="no header"):
        check_header(header)
    assert check_header(DEFAULT_HEADER) == DEFAULT_HEADER


def test_what_stands_beside_a_cache_is_of_these_scales_alone(tmp_path: Path):
    path = tmp_path / "x.cache"
    write_cache(TrtCache("x", HEADER, SCALES, origin=origin(SCALES)), path)
    path.write_text(path.read_text().replace(HEADER, "TRT-100300-EntropyCalibration2"))
    assert read_cache(path).origin is not None, "another header changes no scale"
    path.write_text(path.read_text().replace(bits(0.5), bits(0.25)))
    changed = read_cache(path)
    assert changed.origin is None
    assert any("changed after it was written" in note for note in changed.notes)


def test_a_damaged_file_beside_a_cache_is_named_and_another_program_s_is_not_ours(tmp_path: Path):
    path = tmp_path / "x.cache"
    write_cache(TrtCache("x", HEADER, SCALES, origin=origin(SCALES)), path)
    beside = origin_path(path)
    whole = beside.read_text()
    for part, damaged in (
        ('"samples": 7', '"samples": null'),
        ('"is_random": false', '"is_random": "false"'),
    ):
        assert part in whole
        beside.write_text(whole.replace(part, damaged))
        with pytest.raises(DataError, match=r"x\.cache\.json"):
            read_cache(path)
    for text in ('{"format": "something else"}', "[]"):
        beside.write_text(text)
        assert read_cache(path).origin is None


@pytest.mark.parametrize("kept", [0, 1, 40, -3])
def test_a_file_beside_a_cache_that_is_cut_off_is_not_taken_for_none(tmp_path: Path, kept: int):
    path = tmp_path / "x.cache"
    write_cache(TrtCache("x", HEADER, SCALES, origin=origin(SCALES)), path)
    beside = origin_path(path)
    beside.write_text(beside.read_text()[:kept])
    with pytest.raises(DataError, match=r"x\.cache\.json.* it is damaged") as caught:
        read_cache(path)
    assert "to delete it" in (caught.value.hint or "")
    beside.unlink()
    assert read_cache(path).origin is None


def test_a_file_beside_a_cache_that_cannot_be_read_is_not_taken_for_none(tmp_path: Path):
    path = tmp_path / "x.cache"
    write_cache(TrtCache("x", HEADER, SCALES), path)
    origin_path(path).mkdir()
    with pytest.raises(DataError, match=r"x\.cache\.json"):
        read_cache(path)


def test_every_real_cache_is_read(shared_data):
    folder = shared_data("trt_caches")
    with (folder / "INDEX.csv").open(newline="") as file:
        rows = {row["file"]: row for row in csv.DictReader(file)}
    files = [path for path in sorted(folder.iterdir()) if path.suffix in (".cache", ".flatbuffers")]
    assert len(files) >= 18
    for path in files:
        cache = read_cache(path)
        row = rows[path.name]
        if row["entries"]:
            assert cache.header == row["header"]
            assert len(cache.scales) + len(cache.invalid) == int(row["entries"])
            assert min(cache.scales.values()) == pytest.approx(float(row["min"]), rel=1e-12)
            assert max(cache.scales.values()) == pytest.approx(float(row["max"]), rel=1e-12)
        else:
            assert cache.algorithm is None
            assert len(cache.scales) == 4520


def test_real_caches_survive_being_written(shared_data, tmp_path: Path):
    for path in sorted(shared_data("trt_caches").glob("*.cache")):
        cache = read_cache(path)
        if cache.algorithm is not None:
            assert cache_text(cache.scales, cache.header).encode() == path.read_bytes()
