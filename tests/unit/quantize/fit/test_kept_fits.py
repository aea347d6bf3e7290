# SPDX-License-Identifier: Apache-2.0
"""Fits that are kept beside a timing cache: they come back as they were made, and for nothing else."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from quantrt.calibrate.dataset import open_dataset
from quantrt.config import CalibrationConfig, QuantizeConfig
from quantrt.model.model import Model
from quantrt.quantize.algorithms.measured_biases import measure_biases
from quantrt.quantize.fit.equalized import EQUALIZED, LEAST_SAMPLES, SMOOTHED
from quantrt.quantize.fit.fit import FLOAT_INPUTS, Fitted, fit
from quantrt.quantize.fit.kept_fits import KeptFits, origin_of
from quantrt.quantize.fit.observe import observe
from quantrt.quantize.fit.trials import ROUNDED, SEARCHED
from quantrt.quantize.mixed import keep_float
from quantrt.quantize.qdq.write import write
from quantrt.quantize.quantize import observed_values, with_activations
from quantrt.quantize.target import Target
from quantrt.quantize.targets.cuda import CUDA
from quantrt.quantize.targets.cuda_fp8 import CUDA_FP8
from tests.nets import net, resnet, run_ort, samples, weights

INT8, FP8 = ("cuda", "int8"), ("cuda", "fp8")
OPTIONS = CalibrationConfig()


def uneven() -> Model:
    """Channels between two convolutions have ranges of 1 to 1,000."""
    text = """net (float[N,4,6,6] x) => (float[N,8,6,6] y) {
      h = Conv(x, w, b) r = Relu(h) y = Conv<group=8, pads=[1,1,1,1]>(r, d) }"""
    arrays = weights({"w": (8, 4, 1, 1), "b": (8,), "d": (8, 1, 3, 3)})
    spread = np.array([1, 0.5, 0.2, 0.1, 0.05, 0.02, 0.01, 0.001], np.float32)
    arrays["w"] *= spread.reshape(-1, 1, 1, 1)
    arrays["b"] *= spread
    return net(text, arrays)


def spiky() -> Model:
    """A normalization makes a few channels large for the product behind it."""
    text = """net (float[N,7,64] x) => (float[N,7,32] y) {
      h = LayerNormalization(x, g, b) y = MatMul(h, w) }"""
    arrays = weights({"g": (64,), "b": (64,), "w": (64, 32)})
    arrays["g"][:3] *= 60
    return net(text, arrays)


def made(
    model: Model,
    data: Mapping[str, np.ndarray],
    targets: Mapping[tuple[str, str], Target],
    config: QuantizeConfig,
    folder: Path,
    options: CalibrationConfig = OPTIONS,
) -> tuple[KeptFits, dict[tuple[str, str], Fitted], Any]:
    """What calibration and fitting make, and where they are kept."""
    dataset = open_dataset(data, model.inputs)
    names = observed_values(model, tuple(targets.values()), config)
    origin = origin_of(model, dataset, names=names, targets=targets, config=config, options=options)
    stats, reference = observe(model, names, dataset, config, options)
    fits = {
        key: fit(model, stats, target, reference, config=config, calibration=options)
        for key, target in targets.items()
    }
    return KeptFits(folder / "t.json", origin), fits, stats


def check_same(got: Fitted, want: Fitted) -> None:
    assert got.method == want.method
    assert got.noise_ratios == want.noise_ratios
    assert got.model.digest == want.model.digest
    assert got.model.placement == want.model.placement
    assert got.model.notes == want.model.notes
    assert set(got.model.activations) == set(want.model.activations)
    np.testing.assert_equal(got.means, want.means)
    for mine, theirs in ((got.model.graph, want.model.graph), (got.floats, want.floats)):
        ours, others = (
            {name: value.const_value.numpy() for name, value in graph.graph.initializers.items()}
            for graph in (mine, theirs)
        )
        np.testing.assert_equal(ours, others)
        assert [node.name for node in mine.graph] == [node.name for node in theirs.graph]


CASES = {
    "a network": (resnet, {"x": samples(12, 3, 16, 16)}, QuantizeConfig(), ""),
    "equalized": (uneven, {"x": samples(LEAST_SAMPLES, 4, 6, 6)}, QuantizeConfig(), EQUALIZED),
    "smoothed": (spiky, {"x": samples(12, 7, 64)}, QuantizeConfig(smoothing="folded"), SMOOTHED),
    "per token": (spiky, {"x": samples(12, 7, 64)}, QuantizeConfig(activations="per-token"), ""),
}


def wide_input() -> Model:
    """Nothing reads the widest channel of the input."""
    arrays = weights({"w": (8, 4, 1, 1), "v": (8, 8, 1, 1)})
    arrays["w"][:, 0] = 0
    text = "net (float[N,4,6,6] x) => (float[N,8,6,6] y) { h = Conv(x, w) r = Relu(h) y = Conv(r, v) }"
    return net(text, arrays)


WIDE = samples(12, 4, 6, 6) * np.array([50, 1, 1, 1], np.float32).reshape(4, 1, 1)
CASES["inputs in floats"] = (wide_input, {"x": WIDE}, QuantizeConfig(float_inputs=True), FLOAT_INPUTS)


@pytest.mark.parametrize("case", CASES)
def test_what_is_kept_comes_back_as_it_was_made(case: str, tmp_path: Path):
    make, data, config, method = CASES[case]
    model, targets = make(), {INT8: CUDA, FP8: CUDA_FP8}
    kept, fits, stats = made(model, data, targets, config, tmp_path)
    assert fits[INT8].method.endswith(method)
    assert kept.load(model, targets, config) is None
    kept.save(stats, fits)
    found = kept.load(model, targets, config)
    assert found is not None
    assert found[0] == stats
    assert found[1].keys() == fits.keys()
    for key, fitted in found[1].items():
        check_same(fitted, fits[key])


def test_ranges_that_were_searched_come_back(tmp_path: Path):
    model, config = resnet(), QuantizeConfig()
    kept, fits, stats = made(model, {"x": samples(12, 3, 16, 16)}, {INT8: CUDA}, config, tmp_path)
    plain = fits[INT8].model
    narrow = {n: replace(x, scale=x.scale * np.float32(0.7)) for n, x in plain.activations.items()}
    searched = replace(fits[INT8], model=with_activations(plain, narrow), method=fits[INT8].method + SEARCHED)
    kept.save(stats, {INT8: searched})
    found = kept.load(model, {INT8: CUDA}, config)
    assert found is not None
    check_same(found[1][INT8], searched)


@pytest.mark.parametrize("was_corrected", [True, False])
def test_biases_that_were_measured_come_back(was_corrected: bool, tmp_path: Path):
    model, config = resnet(), QuantizeConfig(bias_correction=was_corrected)
    x = samples(12, 3, 16, 16)
    kept, fits, stats = made(model, {"x": x}, {INT8: CUDA}, config, tmp_path)
    graph = measure_biases(fits[INT8].model, model.graph, [{"x": x}])
    measured = replace(fits[INT8], model=replace(fits[INT8].model, graph=graph))
    kept.save(stats, {INT8: measured})
    found = kept.load(model, {INT8: CUDA}, config)
    assert found is not None
    (got,), (want,), (before,) = (
        run_ort(write(fitted.model), {"x": x}) for fitted in (found[1][INT8], measured, fits[INT8])
    )
    np.testing.assert_array_equal(got, want)
    assert np.abs(got - before).max() > 1e-3


def test_what_comes_back_can_be_mixed(tmp_path: Path):
    model, config = resnet(), QuantizeConfig()
    kept, fits, stats = made(model, {"x": samples(12, 3, 16, 16)}, {INT8: CUDA}, config, tmp_path)
    kept.save(stats, fits)
    found = kept.load(model, {INT8: CUDA}, config)
    assert found is not None
    first = next(row.node for row in fits[INT8].model.placement.decisions if row.is_int8)
    check_same(*(keep_float(one, {first: "kept"}, config) for one in (found[1][INT8], fits[INT8])))


OTHERS = {
    "data": {"data": {"x": samples(12, 3, 16, 16)[::-1].copy()}},
    "calibration": {"options": CalibrationConfig(method="minmax")},
    "quantization": {"config": QuantizeConfig(bias_correction=False)},
    "values": {"targets": {INT8: CUDA}},
    "model": {"model": replace(resnet(), fingerprint=replace(resnet().fingerprint, weights="0"))},
}


@pytest.mark.parametrize("what", OTHERS)
def test_nothing_else_takes_them(what: str, tmp_path: Path, caplog: pytest.LogCaptureFixture):
    usual = {
        "model": resnet(),
        "data": {"x": samples(12, 3, 16, 16)},
        "targets": {INT8: CUDA, FP8: CUDA_FP8},
        "config": QuantizeConfig(),
        "options": OPTIONS,
    }
    kept, fits, stats = made(**usual, folder=tmp_path)
    kept.save(stats, fits)
    other = usual | OTHERS[what]
    with caplog.at_level("INFO", logger="quantrt.quantize.fit.kept_fits"):
        found = made(**other, folder=tmp_path)[0].load(other["model"], other["targets"], other["config"])
    assert found is None
    has_file_of_its_own = what in ("data", "model")
    assert (f"of another {what}: not used" in caplog.text) != has_file_of_its_own


def test_the_same_data_in_other_batches_and_memory_take_them(tmp_path: Path):
    model, config = resnet(), QuantizeConfig()
    data = {"x": samples(12, 3, 16, 16)}
    kept, fits, stats = made(model, data, {INT8: CUDA}, config, tmp_path)
    kept.save(stats, fits)
    other = replace(OPTIONS, batch_size=3, memory_mb=64)
    again = made(model, data, {INT8: CUDA}, config, tmp_path, other)[0]
    assert again.load(model, {INT8: CUDA}, config) is not None


def test_ranges_of_another_build_are_not_taken_for_those_of_the_fits(tmp_path: Path):
    model, config = resnet(), QuantizeConfig()
    kept, fits, stats = made(model, {"x": samples(12, 3, 16, 16)}, {INT8: CUDA}, config, tmp_path)
    kept.save(stats, fits)
    kept.ranges_path.write_bytes(kept.ranges_path.read_bytes() + b" ")
    assert kept.load(model, {INT8: CUDA}, config) is None


@pytest.mark.parametrize("text", ["", "{", "[" * 100_000])
def test_a_damaged_file_is_made_anew(text: str, tmp_path: Path, caplog: pytest.LogCaptureFixture):
    model, config = resnet(), QuantizeConfig()
    kept, fits, stats = made(model, {"x": samples(12, 3, 16, 16)}, {INT8: CUDA}, config, tmp_path)
    kept.save(stats, fits)
    kept.fits_path.write_text(text)
    assert kept.load(model, {INT8: CUDA}, config) is None
    assert f"'{kept.fits_path}' is damaged, not used, and made anew" in caplog.text
    kept.save(stats, fits)
    assert kept.load(model, {INT8: CUDA}, config) is not None


def test_models_and_data_that_share_a_timing_cache_have_files_of_their_own(tmp_path: Path):
    builds = [
        made(resnet(), {"x": samples(12, 3, 16, 16, seed=seed)}, {INT8: CUDA}, QuantizeConfig(), tmp_path)
        for seed in (0, 1)
    ]
    for kept, fits, stats in builds:
        kept.save(stats, fits)
    for kept, _, stats in builds:
        found = kept.load(resnet(), {INT8: CUDA}, QuantizeConfig())
        assert found is not None
        assert found[0] == stats


def test_weights_that_were_rounded_by_data_are_not_kept(tmp_path: Path):
    model, config = resnet(), QuantizeConfig()
    kept, fits, stats = made(model, {"x": samples(12, 3, 16, 16)}, {INT8: CUDA}, config, tmp_path)
    kept.save(stats, {INT8: replace(fits[INT8], method="minmax" + ROUNDED)})
    assert not kept.fits_path.exists()
