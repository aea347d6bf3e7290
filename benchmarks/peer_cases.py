# SPDX-License-Identifier: Apache-2.0
"""Every trained model of the data folder with a budget, for engines beside what other tools make of it.

Pictures with labels have a budget of top-1; where there are none, the float model's classes are the labels.
A detector's is of the faces that the float model finds, that of sentences is of Spearman's correlation with
how alike people find them, and that of models that decide nothing is the part of the outputs' power that may
be noise.
"""

__all__ = [
    "FACES",
    "METRICS",
    "NOISE",
    "PEER_CASES",
    "TOP1",
    "PeerCase",
    "PeerMaterial",
    "Run",
    "make_peer_material",
]

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.assignment_cases import CALIBRATION, PICTURES
from benchmarks.peers.peers import is_class, open_ort
from benchmarks.picture_tasks import same_faces
from benchmarks.tasks.inputs import Feed
from benchmarks.tasks.real_tasks import TEXT_TASK, load_task, scored_sentences
from benchmarks.tasks.task import Task, rows
from quantrt.reference.metrics import Error

TOP1, FACES, SPEARMAN, NOISE = "top-1", "faces", "Spearman", "noise"
"""What a budget is of."""

METRICS = {
    TOP1: "top1",
    FACES: "benchmarks.picture_tasks:same_faces",
    SPEARMAN: "benchmarks.peer_cases:spearman",
    NOISE: "sqnr",
}
"""The same as metrics of `quantrt build`."""

FACE_PICTURES = 200
PAIRS = 500
NOISY_SAMPLES = 500
"""Samples that others are judged on, at most."""

Array = np.ndarray[Any, Any]
Run = Callable[[Feed], Mapping[str, Array]]


@dataclass(frozen=True)
class PeerCase:
    """A model and a budget.

    Attributes:
        task: of `benchmarks.tasks.real_tasks`.
        max_drop_ratio: of what the budget is of.
        batch: samples of a timed run: of one alone a small network is all overhead.
    """

    task: str
    max_drop_ratio: float = 0.005
    budget_of: str = TOP1
    batch: int = 1


PEER_CASES = {
    "resnet56": PeerCase("cifar10_resnet56"),
    "resnet20": PeerCase("cifar10_resnet20"),
    "resnet8": PeerCase("cifar10_resnet8"),
    "resnet8-large": PeerCase("cifar10_resnet8_large"),
    "persons": PeerCase("vww_mobilenet_v1_025_96"),
    "vit": PeerCase("cifar10_vit_tiny_d9"),
    "efficientvit": PeerCase("cifar10_efficientvit_b0"),
    "mobilenetv3": PeerCase("cifar10_mobilenetv3_small", batch=16),
    "mobilenet": PeerCase("mobilenet_v1_025_224"),
    "keywords": PeerCase("kws_dscnn"),
    "faces": PeerCase("ultraface_rfb320", 0.01, FACES),
    "toycar": PeerCase("ad_toycar_autoencoder", 0.01, NOISE),
    "speech": PeerCase("silero_vad_16k_op15", 0.01, NOISE),
    "sentences": PeerCase(TEXT_TASK, 0.005, SPEARMAN),
}


@dataclass(frozen=True)
class PeerMaterial:
    """A model and its data.

    Attributes:
        validation: what `quantrt.build` checks its budget on.
        samples: the same one by one, with what each is judged by.
        hit: (outputs, what a sample is judged by) -> how right they are, 1 at most.
        score: of a model, 1 at most; its loss is the part of the float model's that it has less.
        score_of: the same of outputs for all samples; None where it is the mean of hits.
        is_transformer: whether it has attention, which some tools want to be told.
    """

    path: Path
    calibration: list[Feed]
    validation: Any
    samples: Sequence[tuple[Feed, Any]]
    hit: Callable[[Sequence[Array], Any], float]
    score: Callable[[Run], float]
    is_transformer: bool
    score_of: Callable[[list[list[Array]]], float] | None = None

    def feed(self, batch: int) -> Feed:
        """The first samples, as one run takes them."""
        first = [feed for feed, _ in self.samples[:batch]]
        return (
            first[0]
            if batch == 1
            else {name: np.concatenate([one[name] for one in first]) for name in first[0]}
        )

    @property
    def has_one_shape(self) -> bool:
        """Whether all samples have the shapes of the first."""
        return len({tuple(np.shape(array) for array in feed.values()) for feed, _ in self.samples}) == 1


def make_peer_material(case: PeerCase, models: Path, *, pictures: int = PICTURES) -> PeerMaterial:
    """The data of a case.

    Args:
        models: folder with the files of `benchmarks.models`, for the text model.
        pictures: that top-1 is measured on.
    """
    task = load_task(case.task, models)
    if case.budget_of == TOP1:
        return _classified(task, case.batch, pictures)
    makers = {FACES: _faces, SPEARMAN: _sentences, NOISE: _noisy}
    return makers[case.budget_of](task)


def _material(
    task: Task, validation: Any, samples: Sequence[tuple[Feed, Any]], **judged: Any
) -> PeerMaterial:
    calibration = list(task.calibration)[:CALIBRATION]
    return PeerMaterial(
        task.path, calibration, validation, samples, is_transformer=task.is_transformer, **judged
    )


def _classified(task: Task, batch: int, pictures: int) -> PeerMaterial:
    validation = {name: array[:pictures] for name, array in task.build_validation.items()}
    inputs = {name: array for name, array in validation.items() if name != "labels"}
    if "labels" not in validation:
        validation["labels"] = _classes(open_ort(task.path).run, inputs, batch)
    labels = validation["labels"]

    def score(run: Run) -> float:
        return float(np.mean(_classes(run, inputs, batch) == labels))

    samples = list(zip(rows(inputs, 1), map(int, labels), strict=True))
    return _material(task, validation, samples, hit=is_class, score=score)


def _classes(run: Run, inputs: Feed, batch: int) -> Array:
    """Of every sample, in runs of the size that is timed; the last run is filled up."""
    samples = len(next(iter(inputs.values())))
    count = -(-samples // batch) * batch
    filled = {name: np.resize(array, (count, *array.shape[1:])) for name, array in inputs.items()}
    classes = [next(iter(run(feed).values())).argmax(-1) for feed in rows(filled, batch)]
    return np.concatenate(classes)[:samples]


def _faces(task: Task) -> PeerMaterial:
    """The float model's scores are what faces are told by."""
    feeds = list(itertools.islice(_one_by_one(task), FACE_PICTURES))
    floats = open_ort(task.path)
    scores = [next(iter(floats.run(feed).values())) for feed in feeds]

    def hit(outputs: Sequence[Array], wanted: Array) -> float:
        return same_faces({"scores": outputs[0]}, {"labels": wanted})

    def score(run: Run) -> float:
        return float(np.mean([hit([*run(feed).values()], wanted) for feed, wanted in samples]))

    samples = list(zip(feeds, scores, strict=True))
    validation = [{**feed, "labels": wanted} for feed, wanted in samples]
    return _material(task, validation, samples, hit=hit, score=score)


def _sentences(task: Task) -> PeerMaterial:
    """Pairs of sentences; what is timed first is of middling length."""
    sentences = scored_sentences(PAIRS)
    lengths = [feed["input_ids"].shape[1] for feed, _ in sentences[::2]]
    first = 2 * int(np.argsort(lengths, kind="stable")[len(lengths) // 2])
    samples = sentences[first:] + sentences[:first]
    wanted = np.array([score for _, score in samples])

    def score_of(outputs: list[list[Array]]) -> float:
        return spearman({"vectors": np.concatenate([one[0] for one in outputs])}, {"labels": wanted})

    def score(run: Run) -> float:
        return score_of([[*run(feed).values()] for feed, _ in samples])

    validation = [{**feed, "labels": np.array([alike])} for feed, alike in samples]
    return _material(task, validation, samples, hit=is_class, score=score, score_of=score_of)


def spearman(outputs: Mapping[str, Any], labels: Mapping[str, Any]) -> float:
    """Spearman's correlation of dot products with what people say, of pairs behind each other."""
    from scipy.stats import spearmanr

    vectors = np.concatenate(list(outputs.values())[0]).reshape(len(labels["labels"]), -1)
    alike = np.sum(vectors[0::2] * vectors[1::2], axis=1)
    return float(spearmanr(alike, np.ravel(labels["labels"])[0::2]).statistic)


def _noisy(task: Task) -> PeerMaterial:
    """The float model's outputs are what is wanted; what is timed first is of middling size."""
    feeds = list(_one_by_one(task))
    feeds = feeds[:: -(-len(feeds) // NOISY_SAMPLES)]
    middle = len(feeds) // 2
    feeds = feeds[middle:] + feeds[:middle]
    floats = open_ort(task.path)
    samples = [(feed, [*floats.run(feed).values()]) for feed in feeds]

    def score(run: Run) -> float:
        error = Error()
        for feed, wanted in samples:
            _add(error, wanted, [*run(feed).values()])
        return 1.0 - error.noise_ratio

    def hit(outputs: Sequence[Array], wanted: Sequence[Array]) -> float:
        error = Error()
        _add(error, wanted, outputs)
        return 1.0 - error.noise_ratio

    return _material(task, feeds, samples, hit=hit, score=score)


def _add(error: Error, wanted: Sequence[Array], outputs: Sequence[Array]) -> None:
    for ref, got in zip(wanted, outputs, strict=True):
        error.add(ref, got)


def _one_by_one(task: Task) -> Iterator[Feed]:
    """The samples of all batches."""
    for batch in task.validation:
        count = len(next(iter(batch.values())))
        for row in range(count):
            yield {
                name: array[row : row + 1] if array.ndim and len(array) == count else array
                for name, array in batch.items()
            }
