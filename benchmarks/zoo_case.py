# SPDX-License-Identifier: Apache-2.0
"""One model of the zoo: how it is made, what it is fed, and which of its axes are free."""

__all__ = ["BOTH", "DYNAMO", "TORCHSCRIPT", "Case", "Feed", "pictures", "tokens", "waves"]

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from benchmarks.tasks.inputs import make_images

if TYPE_CHECKING:
    import torch

Feed = dict[str, npt.NDArray[Any]]

DYNAMO, TORCHSCRIPT = "dynamo", "torchscript"
BOTH = (DYNAMO, TORCHSCRIPT)

VOCABULARY = 1000


@dataclass(frozen=True)
class Case:
    """A model with seeded random weights.

    Attributes:
        family: what it is for, as the page groups rows.
        module: makes it; its arguments are the arrays of a feed in their order, and it gives tensors.
        feed: of a seed, one batch of inputs, in values that reach every part of the model.
        free: axes of any size, by input; all others are those of the feed.
        exporters: of torch; each makes a row of its own.
        folds: whether the exporter folds constants; not where it would fold BatchNorms into weights, which
            then could not be left out of a file.
        keep: parts of names of parameters that have their first values.
    """

    name: str
    family: str
    module: Callable[[], "torch.nn.Module"]
    feed: Callable[[int], Feed]
    free: Mapping[str, Mapping[int, str]] = field(default_factory=dict)
    exporters: tuple[str, ...] = (DYNAMO,)
    folds: bool = True
    keep: tuple[str, ...] = ()
    opset: int = 18


def pictures(size: int, batch: int = 4, channels: int = 3, name: str = "images") -> Callable[[int], Feed]:
    """f32 [batch, channels, size, size] with a natural spectrum."""

    def feed(seed: int) -> Feed:
        planes = -(-channels // 3)
        images = np.concatenate(
            [make_images(batch, size, 100 * seed + part) for part in range(planes)], axis=1
        )
        return {name: np.ascontiguousarray(images[:, :channels])}

    return feed


def tokens(
    length: int,
    batch: int = 4,
    vocabulary: int = VOCABULARY,
    *,
    has_mask: bool = True,
    has_padding: bool = True,
) -> Callable[[int], Feed]:
    """input_ids int64 [batch, length], and attention_mask of the same shape: the first sample is full."""

    def feed(seed: int) -> Feed:
        rng = np.random.default_rng(seed)
        ids = rng.integers(5, vocabulary, (batch, length))
        if not has_mask:
            return {"input_ids": ids}
        lengths = rng.integers(length // 2, length + 1, batch)
        lengths[: 1 if has_padding else batch] = length
        mask = np.arange(length)[None] < lengths[:, None]
        return {"input_ids": ids, "attention_mask": mask.astype(np.int64)}

    return feed


def waves(shape: tuple[int, ...], name: str = "input_values") -> Callable[[int], Feed]:
    """Sums of noise along the last axis, of unit variance: sound has most of its power in low frequencies."""

    def feed(seed: int) -> Feed:
        rng = np.random.default_rng(seed)
        steps = rng.standard_normal(shape)
        smooth = (
            steps + 0.95 * np.roll(steps, 1, -1) + 0.9 * np.roll(steps, 2, -1) + 0.8 * np.roll(steps, 3, -1)
        )
        return {name: (smooth / smooth.std()).astype(np.float32)}

    return feed
