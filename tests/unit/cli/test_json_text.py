# SPDX-License-Identifier: Apache-2.0
"""JSON results are strict JSON, whatever a result is made of."""

import json
import math
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from quantrt.cli.json_text import json_text


@dataclass
class Point:
    x: float
    y: tuple[int, ...]


@pytest.mark.parametrize(
    ("value", "want"),
    [
        pytest.param(
            {"a": math.nan, "b": math.inf}, {"a": None, "b": None}, id="no word for NaN and infinity"
        ),
        pytest.param(np.float32(0.5), 0.5, id="numpy scalar"),
        pytest.param(np.array([[1, 2]]), [[1, 2]], id="numpy array"),
        pytest.param(np.array([np.nan, 1.0]), [None, 1.0], id="NaN in an array"),
        pytest.param(Point(1.5, (1, 2)), {"x": 1.5, "y": [1, 2]}, id="dataclass"),
        pytest.param(Path("a/b"), "a/b", id="path"),
        pytest.param(frozenset({"b", "a"}), ["a", "b"], id="set, sorted"),
        pytest.param({1: None, "t": True}, {"1": None, "t": True}, id="keys are text"),
    ],
)
def test_values(value: object, want: object):
    assert json.loads(json_text(value)) == want


def test_an_object_without_a_meaning_is_refused():
    with pytest.raises(TypeError, match="object"):
        json_text({"a": object()})
