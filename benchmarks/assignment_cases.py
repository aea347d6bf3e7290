# SPDX-License-Identifier: Apache-2.0
"""Trained models of the data folder, some made to break in 8 bits, each with a budget of top-1."""

__all__ = ["CASES", "Case", "Material", "make_material"]

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime

from benchmarks.picture_tasks import load_cifar, load_persons
from benchmarks.tasks.inputs import Feed
from benchmarks.tasks.planted import plant_residual_ranges, plant_stream_outliers

CALIBRATION = 128
PICTURES = 2000

PERSONS = "vww_mobilenet_v1_025_96"

Plant = Callable[[onnx.ModelProto], onnx.ModelProto]


@dataclass(frozen=True)
class Case:
    """A model and a budget.

    Attributes:
        task: of `benchmarks.picture_tasks`.
        max_drop_ratio: of top-1; without labels, of agreement with the float model.
        plant: what breaks it; None for the model as it is.
        batch: pictures of a timed run: of one alone a small network is all overhead.
    """

    task: str
    max_drop_ratio: float
    plant: Plant | None = None
    batch: int = 1


CASES = {
    "vit": Case("cifar10_vit_tiny_d9", 0.005),
    "vit-outliers": Case(
        "cifar10_vit_tiny_d9",
        0.01,
        lambda model: plant_stream_outliers(model, (0, 2, 5), channels=2, factor=1000.0, seed=1),
    ),
    "efficientvit": Case("cifar10_efficientvit_b0", 0.005),
    "mobilenetv3": Case("cifar10_mobilenetv3_small", 0.005, batch=16),
    "mobilenetv3-ranges": Case(
        "cifar10_mobilenetv3_small",
        0.01,
        lambda model: plant_residual_ranges(model, spread=1000.0, seed=0),
        batch=16,
    ),
    "resnet56": Case("cifar10_resnet56", 0.005),
    "resnet8": Case("cifar10_resnet8", 0.005),
    "persons": Case(PERSONS, 0.005),
}


@dataclass(frozen=True)
class Material:
    """A model on disk and its data.

    Attributes:
        calibration: batches of samples.
        validation: arrays by input, and `labels`: of people, or of the float model.
        is_transformer: whether it has attention, which some tools want to be told.
    """

    path: Path
    calibration: list[Feed]
    validation: dict[str, np.ndarray[Any, Any]]
    is_transformer: bool = False

    @property
    def inputs(self) -> Feed:
        """What is validated on, without labels."""
        return {name: array for name, array in self.validation.items() if name != "labels"}

    def feed(self, batch: int) -> Feed:
        """The first samples, as one run takes them."""
        return {name: array[:batch] for name, array in self.inputs.items()}


def make_material(case: Case, folder: Path, *, pictures: int = PICTURES) -> Material:
    """Write the model into a folder, and read its data."""
    task = load_persons() if case.task == PERSONS else load_cifar(case.task)
    model = onnx.load(task.path)
    path = folder / f"{case.task}.onnx"
    onnx.save(model if case.plant is None else case.plant(model), path)
    validation = {name: array[:pictures] for name, array in task.build_validation.items()}
    if "labels" not in validation:
        validation["labels"] = _classes(path, validation)
    return Material(path, list(task.calibration)[:CALIBRATION], validation, task.is_transformer)


def _classes(path: Path, feed: Feed) -> np.ndarray[Any, Any]:
    """What the float model says."""
    session = onnxruntime.InferenceSession(path)
    classes: np.ndarray[Any, Any] = session.run(None, dict(feed))[0].argmax(-1)
    return classes
