# SPDX-License-Identifier: Apache-2.0
"""Labels that a classifier's outputs can have, and labels that it does not know."""

import numpy as np
import pytest

from quantrt.assign.accuracy.class_labels import class_count, is_guessing, metric_of_data
from quantrt.assign.accuracy.metric import check_labels
from quantrt.calibrate.dataset import open_dataset
from quantrt.errors import DataError
from quantrt.ir.tensor_spec import TensorSpec

X = TensorSpec("x", "float32", ("n", 2))
LOGITS = TensorSpec("y", "float32", ("n", 3))


@pytest.mark.parametrize("labels", [np.array([0, 2]), np.array([[0], [2]]), np.array([0.0, 2.0])], ids=str)
def test_whole_numbers_of_classes_are_labels(labels: np.ndarray):
    assert check_labels(labels, 2, 3).tolist() == [0, 2]


@pytest.mark.parametrize(
    ("labels", "got"),
    [
        (np.eye(3)[:2], "shape [2, 3]"),
        (np.array([0, 1, 2]), "shape [3]"),
        (np.array([0.5, 1.0]), "float64 such as 0.5"),
        (np.array(["cat", "dog"]), "<U3 such as cat"),
        (np.array([0, 3]), "labels from 0 to 3"),
        (np.array([-1, 1]), "labels from -1 to 1"),
    ],
    ids=str,
)
def test_others_are_refused(labels: np.ndarray, got: str):
    with pytest.raises(DataError, match="cannot measure top1") as caught:
        check_labels(labels, 2, 3)
    assert caught.value.got == got
    assert caught.value.hint


def test_the_first_sample_tells_before_anything_is_built():
    rows = np.zeros((2, 2), np.float32)
    fits, one_hot = (
        open_dataset({"x": rows, "labels": labels}, [X]) for labels in (np.array([0, 2]), np.eye(3)[:2])
    )
    assert metric_of_data("auto", fits, (LOGITS,)).name == "top1"
    assert metric_of_data("auto", None, (LOGITS,)).name == "cosine"
    assert metric_of_data("cosine", one_hot, (LOGITS,)).name == "cosine"
    with pytest.raises(DataError, match="cannot measure top1 with these labels"):
        metric_of_data("auto", one_hot, (LOGITS,))


def test_classes_are_counted_where_they_are_known():
    boxes = TensorSpec("boxes", "float32", ("n", 5, 4))
    assert class_count((boxes, LOGITS)) == 3
    assert class_count((boxes,)) is None
    assert class_count((TensorSpec("y", "float32", ("n", "classes")),)) is None


@pytest.mark.parametrize(
    ("hit_ratio", "samples", "classes", "is_guess"),
    [
        (0.0, 32, 1000, True),
        (0.0017, 600, 10, True),
        (0.99, 600, 10, False),
        (0.2, 600, 10, False),  # 0.1 + 2 sqrt(0.09 / 600) = 0.1245
        (0.5, 100, 2, True),
        (0.7, 100, 2, False),
    ],
)
def test_guessing(hit_ratio: float, samples: int, classes: int, is_guess: bool):
    assert is_guessing(hit_ratio, samples, classes) is is_guess
