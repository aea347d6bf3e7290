# SPDX-License-Identifier: Apache-2.0
"""Engines in a pipeline: it works as before, at any batch size, and says what it is and how fast."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from quantrt.config import AssignConfig, BenchConfig, Budget, BuildConfig, DeviceConfig
from quantrt.errors import DataError, UsageError
from quantrt.runtime.engine import load
from quantrt.torch.diffusers import quantize_pipeline
from quantrt.torch.diffusers.engine_module import EngineModule
from quantrt.torch.diffusers.pipeline import _stride
from tests.unit.torch.diffusers.conftest import SIZE, Pipeline

FAST = BuildConfig(
    bench=BenchConfig(warmup_s=0.01, duration_s=0.02, max_duration_s=0.05, min_runs=3),
    assign=AssignConfig(mixed=False),
    budget=Budget(metric="sqnr", max_drop_ratio=0.1),
    device=DeviceConfig(libraries=("onnxruntime",)),
)
PROMPTS = ["a cat", {"ids": torch.tensor([[1, 2, 3, 4, 5]])}, "blue!"]
BATCH = ["a cat", "dog"]
SCALES = (1.0, 3.0)


def quantize(pipe, **options):
    options = {"prompts": PROMPTS, "steps": 3, "config": FAST, "quiet": True, **options}
    return quantize_pipeline(pipe, **options)


def images(pipe, prompt, **options) -> np.ndarray:
    generator = torch.Generator().manual_seed(5)
    with torch.no_grad():
        return pipe(prompt, num_inference_steps=4, generator=generator, **options).images


class Quantized:
    """One pipeline with engines for all tests that only look at it, and what it made before."""

    def __init__(self, folder: Path):
        self.folder = folder
        self.pipe = Pipeline()
        self.before = {scale: images(self.pipe, BATCH, guidance_scale=scale) for scale in SCALES}
        self.decoder = self.pipe.vae.decoder
        self.report = quantize(
            self.pipe, level="3", modules=("text_encoder", "unet", "vae_decoder"), folder=folder
        )


@pytest.fixture(scope="module")
def quantized(tmp_path_factory: pytest.TempPathFactory) -> Quantized:
    return Quantized(tmp_path_factory.mktemp("pipeline"))


@pytest.mark.parametrize("scale", SCALES)
def test_the_pipeline_works_as_before_with_and_without_guidance(quantized: Quantized, scale: float):
    """The batch of the denoiser is 2 or 4: engines take any."""
    wanted = quantized.before[scale]
    assert np.abs(images(quantized.pipe, BATCH, guidance_scale=scale) - wanted).max() < 0.05


def test_modules_are_engines_that_answer_for_them(quantized: Quantized):
    pipe = quantized.pipe
    for module in (pipe.text_encoder, pipe.unet, pipe.vae.decoder):
        assert isinstance(module, EngineModule)
        assert (module.dtype, module.device) == (torch.float32, torch.device("cpu"))
    assert pipe.unet.config.in_channels == 4
    with pytest.raises(AttributeError, match="no_such_thing"):
        pipe.unet.no_such_thing  # noqa: B018


def test_float_weights_are_let_go(quantized: Quantized):
    assert all(parameter.is_meta for parameter in quantized.decoder.parameters())


def test_engines_are_checked_on_a_prompt_that_they_were_not_calibrated_on(quantized: Quantized):
    samples = {part.name: part.samples for part in quantized.report.parts}
    assert samples == {"text_encoder": 2, "unet": 2 * 3 * 2, "vae_decoder": 2}
    for part in quantized.report.parts:
        with load(part.engine) as engine:
            assert engine.report["verdict"]["checked_on"] == "validation data"
            assert engine.report["config"]["quantize"]["quantization_level"] == "3"


def test_the_report_has_times_sizes_and_likeness(quantized: Quantized, capsys: pytest.CaptureFixture[str]):
    report = quantized.report
    data = json.loads(json.dumps(report.to_dict()))
    assert data["level"] == "3"
    assert [row["name"] for row in data["after"]["modules"]] == ["text_encoder", "unet", "vae_decoder"]
    assert [row["calls"] for row in data["before"]["modules"]] == [1, 3, 1]
    assert len(data["images"]) == len(PROMPTS)
    for part in data["parts"]:
        exported, built = (part["peak_memory"][stage]["host_bytes"] for stage in ("exported", "built"))
        assert built >= exported > 0
    report.show()
    out = capsys.readouterr().out
    assert "unet x 3" in out
    assert "images/s" in out


def test_the_grid_has_both_columns_and_more(quantized: Quantized):
    path = quantized.folder / "grid.png"
    quantized.report.save_grid(path, {"again": quantized.report.images_after})
    with Image.open(path) as grid:
        assert grid.width == 3 * (SIZE + 4)


def test_a_call_of_another_form_is_refused(quantized: Quantized):
    rows = (torch.zeros(1, 4, SIZE, SIZE), torch.tensor(1), torch.zeros(1, 5, 16))
    with pytest.raises(UsageError, match=r"engine of 'unet' was made for other calls: 'return_dict'"):
        quantized.pipe.unet(*rows, {"text_embeds": torch.zeros(1, 16)})


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"prompts": []}, "without prompts"),
        ({"steps": 0}, "number of steps"),
        ({"modules": ("vae_decode",)}, "no module 'vae_decode'"),
        ({"level": "7"}, "unknown quantization level '7'"),
        ({"precisions": ("fp8",)}, "fp8 on a CPU"),
    ],
)
def test_wrong_options_are_refused_before_anything_runs(pipe, options, text):
    with pytest.raises(UsageError, match=text):
        quantize(pipe, **options)


def test_a_module_that_is_never_called_is_named(pipe):
    pipe.text_encoder_2 = torch.nn.Linear(2, 2)
    with pytest.raises(DataError, match=r"never called 'text_encoder_2'"):
        quantize(pipe, modules=("text_encoder_2",))


@pytest.mark.parametrize(
    ("steps", "prompts", "limit"), [(30, 32, 128), (4, 100, 16), (7, 3, 100), (1, 50, 8)]
)
def test_kept_calls_are_of_all_steps(steps: int, prompts: int, limit: int):
    stride = _stride(steps, prompts, limit)
    kept = range(0, steps * prompts, stride)
    assert len(kept) <= limit
    if len(kept) >= steps:
        assert {call % steps for call in kept} == set(range(steps))
