# SPDX-License-Identifier: Apache-2.0
"""Functions of a user's, given or named: what they get, what they may return, and how they fail."""

import types
from collections.abc import Callable
from functools import partial

import numpy as np
import pytest

from quantrt.assign.accuracy.user_metric import UserMetric
from quantrt.budget import name_of
from quantrt.errors import UsageError

OUTPUTS = {"y": np.zeros((5, 3), np.float32)}
LABELS = {"labels": np.arange(5)}
GIVEN = "outputs 'y' float32 [5, 3] and labels 'labels' int64 [5]"


class Scorer:
    """As torchmetrics and sklearn have them: an object that is called, or a method."""

    def __init__(self, scale: float = 1.0) -> None:
        self.scale = scale

    def __call__(self, outputs, labels, *, power: int = 1):
        return self.scale * len(labels["labels"]) ** power

    def score(self, outputs, labels):
        return self(outputs, labels)


def sized(outputs, labels, scale: float = 1.0) -> float:
    return scale * len(labels["labels"])


@pytest.mark.parametrize(
    ("function", "score", "name"),
    [
        (sized, 5.0, "sized"),
        (partial(sized, scale=2.0), 10.0, "sized"),
        (Scorer(3.0), 15.0, "Scorer"),
        (partial(Scorer(), power=2), 25.0, "Scorer"),
        (Scorer(2.0).score, 10.0, "Scorer.score"),
        (lambda outputs, labels: np.float32(0.5), 0.5, "<lambda>"),
        (lambda outputs, labels: np.array(7), 7.0, "<lambda>"),
        (lambda *dicts: len(dicts), 2.0, "<lambda>"),
    ],
    ids=[
        "function",
        "partial",
        "object",
        "partial object",
        "method",
        "float32",
        "0-d array",
        "any arguments",
    ],
)
def test_whatever_can_be_called_is_a_metric(function: Callable, score: float, name: str):
    metric = UserMetric(function)
    assert metric(OUTPUTS, LABELS) == score
    assert metric.name == name_of(function) == f"{__name__}:{name}"


def test_a_metric_gets_dicts_of_its_own():
    def spoil(outputs, labels):
        labels.clear()
        return outputs.pop("y").size

    metric = UserMetric(spoil)
    assert metric(OUTPUTS, LABELS) == metric(OUTPUTS, LABELS) == 15.0


@pytest.mark.parametrize(
    ("answer", "got"),
    [
        (None, "NoneType: None"),
        ("0.5", "str: '0.5'"),
        ([1, [2]], "list: [1, [2]]"),
        ({"map": 0.5}, "dict: {'map': 0.5}"),
        (1j, "complex: 1j"),
        (np.ones(2), "an array float64 [2]: array([1., 1.])"),
        (np.ones((1, 1)), "an array float64 [1, 1]: array([[1.]])"),
    ],
    ids=str,
)
def test_a_metric_that_returns_no_number_is_told_what_it_was_given(answer: object, got: str):
    with pytest.raises(UsageError, match="<lambda>' returned no number") as caught:
        UserMetric(lambda outputs, labels: answer)(OUTPUTS, LABELS)
    assert caught.value.got == got
    assert caught.value.expected == f"a float from {GIVEN}"


@pytest.mark.parametrize(
    ("function", "signature"),
    [
        (lambda outputs: 1.0, "<lambda>(outputs)"),
        (lambda: 1.0, "<lambda>()"),
        (lambda model, outputs, labels: 1.0, "<lambda>(model, outputs, labels)"),
        (partial(sized, {}, {}, 1.0), "sized() -> float"),
    ],
    ids=["one", "none", "three", "bound"],
)
def test_a_function_of_other_arguments_is_refused_before_it_is_called(function: Callable, signature: str):
    with pytest.raises(UsageError, match="cannot be called with outputs and labels") as caught:
        UserMetric(function)
    assert caught.value.got == signature
    assert caught.value.expected == "function(outputs, labels), each a dict of arrays [samples, ...]"


def test_a_metric_that_fails_is_an_error_of_its_own():
    with pytest.raises(UsageError, match="<lambda>' failed") as caught:
        UserMetric(lambda outputs, labels: outputs["boxes"].mean())(OUTPUTS, LABELS)
    assert caught.value.got.startswith("KeyError: 'boxes' (line ")
    assert caught.value.got.endswith("of test_user_metric.py)")
    assert caught.value.expected == f"a float from {GIVEN}"
    assert isinstance(caught.value.__cause__, KeyError)
    assert caught.value.hint == "`print(outputs, labels)` in it"


def test_a_metric_that_wants_labels_which_are_not_there_is_told_where_they_go():
    with pytest.raises(UsageError, match="failed") as caught:
        UserMetric(sized)(OUTPUTS, {})
    assert caught.value.expected == "a float from outputs 'y' float32 [5, 3] and no labels"
    assert caught.value.hint == "an array 'labels' in the validation data, or --labels"


def test_what_a_function_in_c_does_with_dicts_is_told_too():
    with pytest.raises(UsageError, match="the metric 'builtins:max' failed") as caught:
        UserMetric(max)(OUTPUTS, LABELS)
    assert caught.value.got.startswith("TypeError: '>' not supported between instances of 'dict' and 'dict'")


def test_lists_are_told_by_their_first_and_many_arrays_by_their_number():
    ragged = {"boxes": [np.zeros((4, 6), np.float32), np.zeros((1, 6), np.float32)], "none": []}
    with pytest.raises(UsageError) as caught:
        UserMetric(lambda outputs, labels: None)(ragged, {})
    assert caught.value.expected == (
        "a float from outputs 'boxes' a list of 2 arrays, the first float32 [4, 6], "
        "'none' a list of 0 arrays and no labels"
    )
    many = {f"y{index}": np.zeros(1, np.int8) for index in range(20)}
    with pytest.raises(UsageError) as caught:
        UserMetric(lambda outputs, labels: None)(many, {})
    assert caught.value.expected.endswith("'y7' int8 [1], 12 more and no labels")


def test_a_function_by_its_name(user_module: types.ModuleType):
    user_module.score = sized
    metric = UserMetric("metrics_of_a_user:score")
    assert (metric.name, metric(OUTPUTS, LABELS)) == ("metrics_of_a_user:score", 5.0)
    user_module.score = lambda outputs, labels: outputs["boxes"]
    with pytest.raises(UsageError, match="the metric 'metrics_of_a_user:score' failed") as caught:
        UserMetric("metrics_of_a_user:score")(OUTPUTS, LABELS)
    assert caught.value.hint == "the same with --traceback, which shows where"


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("no_such_module_anywhere:f", "no_such_module_anywhere"),
        (":f", "cannot find the function ':f'"),
        ("metrics_of_a_user:", "no function"),
        ("metrics_of_a_user:scor", "'metrics_of_a_user:score'"),
        ("metrics_of_a_user:constant", "'constant' is no function: int"),
        (
            "metrics_of_a_user:alone",
            "outputs and labels: too many positional arguments",
        ),
    ],
)
def test_a_function_that_is_not_there(user_module: types.ModuleType, name: str, text: str):
    user_module.score = lambda outputs, labels: 0.0
    user_module.alone = lambda outputs: 0.0
    user_module.constant = 3
    with pytest.raises(UsageError) as caught:
        UserMetric(name)
    assert text in str(caught.value)
