# SPDX-License-Identifier: Apache-2.0
"""What `inspect` says of a calibration cache, alone and beside a model."""

import json
from pathlib import Path

import pytest

from quantrt.calibrate.caches.trt_cache import TrtCache, read_cache
from quantrt.model.model import Model
from quantrt.quantize.cache_match import match_cache
from quantrt.quantize.make_cache import float_activations
from quantrt.quantize.targets import TARGETS
from quantrt.quantize.targets.cuda import CUDA
from quantrt.report.built.work_shares import work_shares
from quantrt.report.ranges.cache import SHOWN, describe_cache, missing_notes, show_cache
from tests.nets import resnet

LINES = (
    "TRT-100300-EntropyCalibration2",
    "x: 3d000000",
    "r0: 3d800000",
    "r2: 3e000000",
    "mean: 7f800000",
    *(f"(Unnamed Layer* {i}) [Constant]_output: 3f800000" for i in range(SHOWN + 4)),
)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "x.cache"
    path.write_text("\n".join(LINES) + "\n")
    return path


def matched(cache: TrtCache, model: Model) -> dict:
    return describe_cache(cache, Path(cache.name), match_cache(model, cache, (*TARGETS, CUDA)))


def test_a_cache_alone_is_its_scales(path: Path, capsys: pytest.CaptureFixture[str]):
    data = describe_cache(read_cache(path), path)
    assert data["tensorrt_version"] == "10.3.0"
    assert data["tensors"][0] == {"name": "x", "scale": 2**-5, "lo": -4.0, "hi": 127 / 32}
    assert data["invalid"] == {"mean": "infinite"}
    assert data["model"] is None and data["origin"] is None
    assert json.loads(json.dumps(data, allow_nan=False)) == data
    show_cache(data, layers=True)
    out = capsys.readouterr().out
    assert "TensorRT 10.3.0" in out and "-4 .. 3.969" in out and "infinite" in out
    assert "role" not in out


def test_beside_a_model_every_tensor_has_its_role(path: Path, capsys: pytest.CaptureFixture[str]):
    data = matched(read_cache(path), resnet())
    model = data["model"]
    assert {row["tensor"] for row in model["used"]} >= {"x", "r0", "r2"}
    assert set(model["missing"]) >= {"r1"}
    assert len(model["unknown"]) == SHOWN + 4
    assert json.loads(json.dumps(data, allow_nan=False)) == data
    show_cache(data)
    brief = capsys.readouterr().out
    assert "and 4 more: --layers shows them" in brief
    assert "openvino, tensorrt" in brief, "targets that lose the same nodes share a row"
    show_cache(data, layers=True)
    out = capsys.readouterr().out
    assert "more: --layers" not in out and "role" in out
    assert max(len(line) for line in (brief + out).splitlines()) <= 100


def test_what_is_missing_has_its_cost(path: Path, capsys: pytest.CaptureFixture[str]):
    cache, model = read_cache(path), resnet()
    match = match_cache(model, cache, (*TARGETS, CUDA))
    data = describe_cache(cache, path, match, work_shares(model))
    costs = data["model"]["cost_ratio"]
    assert costs.keys() == data["model"]["missing"].keys()
    assert all(0 <= cost <= 1 for cost in costs.values()) and costs["r1"] > 0
    show_cache(data)
    out = capsys.readouterr().out
    assert "of all products" in out and f"{costs['r1']:.1%}" in out
    assert describe_cache(cache, path, match)["model"]["cost_ratio"] == {}, "not known without the model"


def test_times_of_an_engine_stand_beside_it(path: Path, capsys: pytest.CaptureFixture[str]):
    cache, model = read_cache(path), resnet()
    match = match_cache(model, cache, (*TARGETS, CUDA))
    times = {"r1": {"library": "openvino", "cost_us": 12.34, "of_us": 3400.0}}
    data = describe_cache(cache, path, match, work_shares(model), times)
    assert data["model"]["estimated_cost"] == times
    assert json.loads(json.dumps(data, allow_nan=False)) == data
    show_cache(data)
    out = capsys.readouterr().out
    assert "costs about" in out and "12.3 us" in out
    assert "costs are estimated, for openvino, from layers that take 3.4 ms together" in out
    assert missing_notes(data["model"]) == [
        "without a range for 'r1' a run takes about 12.3 us longer, of layers that take 3.4 ms together "
        "(estimated)"
    ]
    assert missing_notes(describe_cache(cache, path, match)["model"]) == []


def test_a_cache_with_everything_has_no_list_of_what_is_missing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    model = resnet()
    path = tmp_path / "x.cache"
    path.write_text("\n".join([LINES[0], *(f"{name}: 3d000000" for name in float_activations(model))]))
    show_cache(matched(read_cache(path), model))
    out = capsys.readouterr().out
    assert "float because" not in out
    assert "missing                0" in out
