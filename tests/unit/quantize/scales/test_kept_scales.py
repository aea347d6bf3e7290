# SPDX-License-Identifier: Apache-2.0
"""Scales of weights are searched once, and known by the content of the weight afterwards."""

from pathlib import Path

import numpy as np
import pytest

from quantrt.dtypes import INT8
from quantrt.quantize.scales import kept_scales, qparams
from quantrt.quantize.scales.kept_scales import KeptScales
from quantrt.quantize.scales.qparams import quantize_weight

CASES = [((48, 32), 0), ((48, 32), 1), ((24, 8, 3, 3), 0), ((48, 32), None)]


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    return tmp_path / "timings.json"


def no_search(rows, qmax):
    raise AssertionError("it was searched again")


@pytest.mark.parametrize(("shape", "axis"), CASES)
def test_the_next_build_has_the_same_codes_without_a_search(cache, rng, monkeypatch, shape, axis):
    weight = rng.standard_normal(shape, dtype=np.float32)
    plain = quantize_weight(weight, axis=axis)
    scales = KeptScales(cache)
    first = quantize_weight(weight, axis=axis, kept=scales)
    scales.save()
    monkeypatch.setattr(qparams, "least_error_scale", no_search)
    again = quantize_weight(weight, axis=axis, kept=KeptScales(cache))
    for found in (first, again):
        np.testing.assert_array_equal(found.codes, plain.codes)
        np.testing.assert_array_equal(found.qparams.scale, plain.qparams.scale)


def test_a_floor_is_of_each_build(cache, rng):
    weight = rng.standard_normal((4, 16), dtype=np.float32)
    scales = KeptScales(cache)
    plain = quantize_weight(weight, axis=0, kept=scales)
    floor = 2 * plain.qparams.scale
    np.testing.assert_array_equal(
        quantize_weight(weight, axis=0, kept=scales, min_scale=floor).qparams.scale, floor
    )
    np.testing.assert_array_equal(
        quantize_weight(weight, axis=0, kept=scales).qparams.scale, plain.qparams.scale
    )


@pytest.mark.parametrize("change", ["a value", "the axis", "the largest code", "the shape"])
def test_another_weight_is_searched(cache, rng, change):
    weight = rng.standard_normal((16, 16), dtype=np.float32)
    scales = KeptScales(cache)
    quantize_weight(weight, axis=0, kept=scales)
    scales.save()
    other, axis, qmax = weight.copy(), 0, 127
    if change == "a value":
        other[3, 5] *= 100
    elif change == "the shape":
        other = other.reshape(32, 8)
    axis, qmax = (1 if change == "the axis" else axis), (63 if change == "the largest code" else qmax)
    kept = KeptScales(cache)
    found = quantize_weight(other, axis=axis, qmax=qmax, dtype=INT8, kept=kept)
    np.testing.assert_array_equal(
        found.qparams.scale, quantize_weight(other, axis=axis, qmax=qmax).qparams.scale
    )
    before = kept.path.read_bytes()
    kept.save()
    assert kept.path.read_bytes() != before


def test_what_is_known_already_is_not_written_again(cache, rng):
    scales = KeptScales(cache)
    scales.save()
    assert not scales.path.exists()
    weight = rng.standard_normal((16, 16), dtype=np.float32)
    quantize_weight(weight, axis=0, kept=scales)
    scales.save()
    scales.path.touch()
    stamp = scales.path.stat().st_mtime_ns
    again = KeptScales(cache)
    quantize_weight(weight, axis=0, kept=again)
    again.save()
    assert again.path.stat().st_mtime_ns == stamp


def test_scales_of_other_code_are_not_used(cache, rng, monkeypatch):
    weight = rng.standard_normal((16, 16), dtype=np.float32)
    scales = KeptScales(cache)
    quantize_weight(weight, axis=0, kept=scales)
    scales.save()
    monkeypatch.setattr(kept_scales, "source_digest", lambda folders: "other")
    monkeypatch.setattr(qparams, "least_error_scale", no_search)
    with pytest.raises(AssertionError, match="searched again"):
        quantize_weight(weight, axis=0, kept=KeptScales(cache))


def test_a_damaged_file_is_named_and_made_anew(cache, rng, caplog):
    path = cache.with_name("timings.json.scales")
    path.write_bytes(b"\x00" * 40)
    scales = KeptScales(cache)
    assert f"'{path}' is damaged, not used, and made anew" in caplog.text
    quantize_weight(rng.standard_normal((16, 16), dtype=np.float32), axis=0, kept=scales)
    scales.save()
    assert len(KeptScales(cache)._scales) == 1


def test_a_changed_bit_is_noticed(cache, rng, caplog):
    weight = rng.standard_normal((16, 16), dtype=np.float32)
    scales = KeptScales(cache)
    quantize_weight(weight, axis=0, kept=scales)
    scales.save()
    raw = bytearray(scales.path.read_bytes())
    raw[-5] ^= 1
    scales.path.write_bytes(raw)
    assert KeptScales(cache)._scales == {}
    assert "its scales do not match their checksum" in caplog.text


def test_builds_that_run_at_once_keep_the_scales_of_both(cache, rng, monkeypatch):
    weights = [rng.standard_normal((16, 16), dtype=np.float32) for _ in range(2)]
    builds = [KeptScales(cache) for _ in weights]
    for scales, weight in zip(builds, weights, strict=True):
        quantize_weight(weight, axis=0, kept=scales)
    for scales in builds:
        scales.save()
    monkeypatch.setattr(qparams, "least_error_scale", no_search)
    for weight in weights:
        quantize_weight(weight, axis=0, kept=KeptScales(cache))
