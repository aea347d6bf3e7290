# SPDX-License-Identifier: Apache-2.0
"""Recorded samples, and that ranges from them do not depend on how often the pipeline went round."""

from pathlib import Path

import numpy as np
import pytest
import torch

from quantrt.calibrate.collect import collect
from quantrt.calibrate.dataset import open_dataset
from quantrt.calibrate.ranges.grid import Grid
from quantrt.calibrate.ranges.ranges import choose_range
from quantrt.config import RANGE_METHODS, CalibrationConfig
from quantrt.torch.diffusers.parts import find_parts
from quantrt.torch.diffusers.record import Recording, Samples, recording
from tests.denoisers import unet
from tests.nets import samples


def record(pipe, folder: Path, *, every: int = 1) -> Recording:
    (part,) = find_parts(pipe, None)
    one = Recording(part, folder, every)
    with recording([one]), torch.no_grad():
        for number, prompt in enumerate(("a cat", "hill")):
            one.start_prompt(number)
            pipe(prompt, num_inference_steps=3, generator=torch.Generator().manual_seed(number))
    return one


def test_every_sample_has_a_file_that_tells_prompt_and_step(pipe, tmp_path: Path):
    record(pipe, tmp_path)
    assert len(list(tmp_path.iterdir())) == 2 * 3 * 2
    with np.load(tmp_path / "p001-s002-r1.npz") as arrays:
        assert {name: arrays[name].shape for name in arrays.files} == {
            "sample": (1, 4, 16, 16),
            "timestep": (1,),
            "encoder_hidden_states": (1, 5, 16),
            "added_cond_kwargs.text_embeds": (1, 16),
        }
        assert arrays["timestep"].tolist() == [1]


def test_hooks_are_gone_afterwards(pipe, tmp_path: Path):
    one = record(pipe, tmp_path, every=2)
    assert one.calls == 6
    with torch.no_grad():
        pipe("more", num_inference_steps=2)
    assert one.calls == 6
    assert len(list(tmp_path.iterdir())) == 6


def test_samples_have_the_inputs_of_the_model_alone(pipe, tmp_path: Path):
    record(pipe, tmp_path)
    (first, *_) = Samples(sorted(tmp_path.iterdir()), frozenset({"sample"}))
    assert first.keys() == {"sample"}


@pytest.mark.parametrize("method", RANGE_METHODS)
def test_ranges_do_not_depend_on_loop_counts(method: str):
    """Steps by prompts, prompts by steps, all of it twice, in batches of any size: the same ranges."""
    model = unet()
    prompts, steps = 3, 4
    rows = {"sample": (4, 4, 4), "time": (8,), "text": (5, 6)}
    data = {
        name: samples(prompts, steps, *shape) * np.arange(1, steps + 1).reshape(1, -1, *[1] * len(shape))
        for name, shape in rows.items()
    }
    by_prompt = {name: array.reshape(-1, *rows[name]).astype(np.float32) for name, array in data.items()}
    by_step = {
        name: array.swapaxes(0, 1).reshape(-1, *rows[name]).astype(np.float32) for name, array in data.items()
    }
    twice = {name: np.concatenate([array, array]) for name, array in by_prompt.items()}
    names = tuple(value.name for node in model.graph.graph for value in node.outputs)[:12]
    found = []
    for stream, batch_size in ((by_prompt, 2), (by_step, 5), (twice, 3)):
        config = CalibrationConfig(method=method, batch_size=batch_size)
        stats = collect(model, names, open_dataset(stream, model.inputs), config)
        grid = Grid(255, symmetric=True, signed=True)
        found.append({name: choose_range(one, grid, config) for name, one in stats.tensors.items()})
    first = found[0]
    for other in found[1:]:
        for name, range_ in other.items():
            assert (range_.lo, range_.hi) == pytest.approx((first[name].lo, first[name].hi), rel=1e-5), name
