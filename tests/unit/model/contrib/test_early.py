# SPDX-License-Identifier: Apache-2.0
"""Operators older than the standard's compute what ONNX Runtime's own do."""

import numpy as np
import pytest

from tests.unit.model.contrib.spelling import M, check, floats, reason_of


@pytest.mark.parametrize("upper", [0, 1])
@pytest.mark.parametrize("offset", [None, -1, 0, 2])
def test_triangles(upper: int, offset: int | None, rng):
    weights = {} if offset is None else {"k": np.asarray(offset, np.int64)}
    body = f"y = {M}.Trilu<upper={upper}>(x{'' if offset is None else ', k'})"
    check(body, {"x": floats(rng, 2, 5, 7)}, weights, opset=13)


@pytest.mark.parametrize("mode", ["bilinear", "nearest", "bicubic"])
@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
def test_grids(mode: str, padding: str, rng):
    body = f'y = {M}.GridSample<mode="{mode}", padding_mode="{padding}", align_corners=1>(x, g)'
    grid = rng.uniform(-1.2, 1.2, (2, 3, 4, 2)).astype(np.float32)
    check(body, {"x": floats(rng, 2, 3, 5, 6), "g": grid}, most=1e-5, opset=13)


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_one_more_axis(axis: int, rng):
    check(f"y = {M}.ExpandDims(x, k)", {"x": floats(rng, 3, 4)}, {"k": np.asarray(axis, np.int32)})


@pytest.mark.parametrize("mode", ["constant", "edge", "reflect"])
def test_borders(mode: str, rng):
    weights = {"p": np.array([0, 1, 2, 0]), "v": np.asarray([1.5], np.float32)}
    value = ", v" if mode == "constant" else ""
    check(f'y = {M}.Pad<mode="{mode}">(x, p{value})', {"x": floats(rng, 4, 5)}, weights)


@pytest.mark.parametrize("step", ["", ", s"])
def test_ranges(step: str):
    inputs = {"a": np.asarray(1.0, np.float32), "b": np.asarray(7.5, np.float32)}
    check(f"y = {M}.Range(a, b{step})", inputs, {"s": np.asarray(2.0, np.float32)} if step else {})


def test_computed_axes_stay(rng):
    inputs = {"x": floats(rng, 3, 4), "k": np.asarray(0, np.int32)}
    assert reason_of(f"y = {M}.ExpandDims(x, k)", inputs) == "its axis is computed"
